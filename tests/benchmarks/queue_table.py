"""The runs of a benchmark side by side: for the eye as tables, for the file as records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from tests.benchmarks.measures import Round, cpu_ms, jobs_per_s, p50_ms, p99_ms, padding, server_ms
from tests.benchmarks.report import DASH
from tests.benchmarks.runs import Run

if TYPE_CHECKING:
    from rich.console import Console

FOR_LATENCY = ("single", "full", "interactive")  # kinds of runs whose speed is none

Pairs = Sequence[tuple[Run, Run | None]]  # a run, and the raw loop over the same model in its round


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a run: to which runs it applies, and its value over all rounds."""

    title: str
    applies: Callable[[Run], bool]
    value: Callable[[Pairs], float]

    def cell(self, pairs: Pairs) -> str:
        """The value over those runs to which it applies."""
        fitting = [pair for pair in pairs if self.applies(pair[0])]
        return f"{self.value(fitting):.3g}" if fitting else DASH


def _middle(figure: Callable[[Run], float]) -> Callable[[Pairs], float]:
    return lambda pairs: median(figure(run) for run, _ in pairs)


def _share(pairs: Pairs) -> float:
    return median(cpu_ms(raw) / cpu_ms(run) for run, raw in pairs if raw)


COLUMNS = (
    Column("jobs/s", lambda run: run.kind not in FOR_LATENCY, _middle(jobs_per_s)),
    Column("CPU ms", lambda run: run.kind not in FOR_LATENCY, _middle(cpu_ms)),
    Column("of raw", lambda run: run.kind in {"windows", "throughput"} and run.model != "noop", _share),
    Column("padding", lambda run: run.padded_tokens > 0, _middle(padding)),
    Column("p50 ms", lambda run: bool(run.latencies_s), _middle(p50_ms)),
    Column("p99 ms", lambda run: bool(run.latencies_s), lambda pairs: p99_ms([run for run, _ in pairs])),
    Column("server ms", lambda run: run.server_cpu_s > 0, _middle(server_ms)),
    Column("MiB", lambda run: run.rss_mib > 0, _middle(lambda run: run.rss_mib)),
)


def print_runs(console: Console, rounds: Sequence[Round]) -> None:
    """A table for each model, one row a contestant and kind of run: medians over the rounds."""
    keys = dict.fromkeys(key for of in rounds for key in of)
    for model in dict.fromkeys(model for _, model, _ in keys):
        table = Table("run", "who", title=f"model: {model}", title_justify="left")
        for column in COLUMNS:
            table.add_column(column.title, justify="right")
        for key in (key for key in keys if key[1] == model):
            pairs = [(of[key], of.get(("raw", model, "windows"))) for of in rounds if key in of]
            table.add_row(key[2], key[0], *(column.cell(pairs) for column in COLUMNS))
        console.print(table)


def records(rounds: Sequence[Round]) -> list[dict[str, object]]:
    """Every run for the file: latencies as percentiles, no labels."""
    return [{"round": index, **_record(run)} for index, of in enumerate(rounds) for run in of.values()]


def _record(run: Run) -> dict[str, object]:
    record = {name: value for name, value in asdict(run).items() if name not in {"labels", "latencies_s"}}
    if run.latencies_s:
        record |= {"p50_ms": p50_ms(run), "p99_ms": p99_ms([run])}
    return record
