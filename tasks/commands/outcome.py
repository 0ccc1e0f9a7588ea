"""What became of a task or a ticket, as the result backend knows it and as a terminal shows it."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import celery
import click
from celery import states
from celery.exceptions import TimeoutError as WaitedTooLong

from tasks.commands.exits import exit_failed

# Any: the JSON of the contract, as the backend decoded it.
Result = Mapping[str, Any]

_EXCEPTION_STATES: Final = frozenset(states.EXCEPTION_STATES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One task as its backend knows it.

    Attributes:
        task_id: its id.
        state: Celery's state; `PENDING` also means an id that is unknown or expired.
        result: the message's result once the state is `SUCCESS`.
        error: why it failed, if it did.
    """

    task_id: str
    state: str
    result: Result | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it has no result, or one of its tickets failed."""
        return self.result is None or any(map(ticket_failed, self.result["results"]))

    @property
    def label(self) -> str | None:
        """The label of the only ticket of a single-ticket message; None if it has none."""
        return self.result["results"][0]["label"] if self.result is not None else None

    def as_json(self) -> str:
        """Return one line of JSON."""
        fields = {"task_id": self.task_id, "state": self.state, "result": self.result, "error": self.error}
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    def as_rows(self) -> Iterator[str]:
        """Yield a tab-separated line per ticket, or one for a task without a result."""
        if self.result is None:
            yield f"{self.task_id}\t{self.state}\t{self.error or ''}".rstrip()
            return
        for ticket in self.result["results"]:
            yield f"{self.task_id}\t{ticket_row(ticket)}"


def ticket_failed(ticket: Result) -> bool:
    """Tell whether a ticket's result is an error."""
    return ticket.get("error") is not None


def ticket_row(ticket: Result) -> str:
    """Return id, label and score, or id and error, separated by tabs."""
    name = printable(ticket["id"])
    if error := ticket.get("error"):
        return f"{name}\t-\t{error['code']}: {error['message']}"
    score = ticket["score"]
    shown = "-" if score is None else f"{score:.3f}"
    return f"{name}\t{ticket['label'] or '-'}\t{shown}"


def printable(text: str) -> str:
    """Return `text` with lone surrogates written as escapes, which no terminal could encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read(app: celery.Celery, task_id: str) -> Outcome:
    """Return what the backend knows now."""
    found = app.AsyncResult(task_id)
    state, value = found.state, found.result
    if state == states.SUCCESS and isinstance(value, Mapping):
        return Outcome(task_id, state, result=value)
    if state in _EXCEPTION_STATES:
        return Outcome(task_id, state, error=str(value))
    return Outcome(task_id, state)


def wait(app: celery.Celery, task_ids: Iterable[str], timeout_s: float) -> Iterator[Outcome]:
    """Yield each task's outcome in the order given; at the timeout the rest as they are. Blocks."""
    ends_s = time.monotonic() + timeout_s
    for task_id in task_ids:
        pending = app.AsyncResult(task_id)
        try:
            pending.get(timeout=max(ends_s - time.monotonic(), 0.001), propagate=False)
        except WaitedTooLong:
            yield Outcome(task_id, states.PENDING)
        else:
            yield read(app, task_id)


def show(outcomes: Iterable[Outcome], *, as_json: bool) -> None:
    """Print outcomes as they come; end the command with code 1 if one failed."""
    failed = False
    for each in outcomes:
        failed |= each.failed
        click.echo(each.as_json() if as_json else "\n".join(each.as_rows()))
    if failed:
        exit_failed()
