"""What a run over many tickets looked like: a table of tickets, and the figures that batching is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from tasks.classify.corpus.tickets import LabelledTicket
from tasks.commands.outcome import Outcome, Result

TEXT_CHARACTERS: Final = 56


@dataclass(frozen=True, slots=True)
class Figures:
    """The run in numbers, from the timings of single-ticket messages.

    Attributes:
        tickets: how many came back with a label.
        wall_s: between the first and the last result.
        batches: how many model calls they took.
        batch_size_max: the largest.
        padding_waste: share of padding in the real tokens: (padded - real) / real.
        model: the result's own description of what made it.
    """

    tickets: int
    wall_s: float
    batches: float
    batch_size_max: int
    padding_waste: float
    model: Mapping[str, Any]  # Any: JSON of the contract

    def lines(self) -> list[str]:
        """Return the figures as sentences."""
        rate = (self.tickets - 1) / self.wall_s if self.wall_s else 0.0
        average = self.tickets / self.batches
        model = self.model
        return [
            f"throughput     {rate:.0f} tickets/s, {self.wall_s:.2f} s from the first result to the last",
            f"batches        {self.batches:.0f}: {average:.1f} tickets each, {self.batch_size_max} at most",
            f"padding waste  {self.padding_waste:.1%} of the real tokens",
            f"model          {model['name']} {model['version']}, {model['precision']}",
            f"runtime        {model['runtime']}, {model['provider']}",
        ]


def figures(results: Sequence[Result], wall_s: float) -> Figures:
    """Add up the timings of at least one single-ticket message."""
    timings = [result["timings"] for result in results]
    real = sum(each["real_tokens"] for each in timings)
    padded = sum(each["padded_tokens"] for each in timings)
    return Figures(
        tickets=len(results),
        wall_s=wall_s,
        batches=sum(1 / each["batch_size_max"] for each in timings),  # a batch of n reports itself n times
        batch_size_max=max(each["batch_size_max"] for each in timings),
        padding_waste=(padded - real) / real,
        model=results[0]["model"],
    )


def ticket_table(tickets: Sequence[LabelledTicket], outcomes: Mapping[str, Outcome]) -> Table:
    """Return a row per ticket; `outcomes` are by ticket id."""
    table = Table("ticket", "lang", "text", "label", "score", box=None, pad_edge=False)
    table.columns[-1].justify = "right"
    for ticket in tickets:
        label, score = _answer(outcomes[ticket.id])
        text = shortened(": ".join(ticket.fields.values()))
        table.add_row(ticket.id, ticket.lang, Text(text), label, score)
    return table


def shortened(text: str) -> str:
    """Return the first characters of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARACTERS else f"{line[: TEXT_CHARACTERS - 1]}…"


def _answer(outcome: Outcome) -> tuple[Text, str]:
    """Return what the columns `label` and `score` show."""
    if outcome.result is None:
        return Text(outcome.error or outcome.state, style="red"), ""
    ticket = outcome.result["results"][0]
    if error := ticket.get("error"):
        return Text(error["code"], style="red"), ""
    return Text(ticket["label"] or "-"), f"{ticket['score'] or 0:.2f}"
