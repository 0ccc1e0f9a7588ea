"""One run of one contestant: a full queue released at once; or the raw loop, which times itself.

Start-up and a warm-up of 64 jobs are over before the clock starts. It stops with the last result; CPU time
is read a little later, so that acknowledgements after the last result count too. A run is a plain record;
what it means is for `measures`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.benchmarks import contestants, latency, workload
from tests.benchmarks.broker import BenchError
from tests.benchmarks.models import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.broker import Broker, Counters, Json
    from tests.benchmarks.contestants import Contestant
    from tests.benchmarks.models import BenchModel
    from tests.benchmarks.processes import WorkerProcess
    from tests.benchmarks.workload import Ticket

WARM_UP_JOBS = 64
SETTLE_S = 0.2
RUN_TIMEOUT_S = 180.0
BACKLOG = 512  # a full credit of 256 in flight and a backlog of 256 behind it


@dataclass(slots=True)
class Run:
    """What one run gave; token figures only where the contestant tells them.

    Attributes:
        who: the contestant; `model`: its model; `kind`: what was varied, such as `pinned-2`.
        jobs: tickets, each a message of its own; `wall_s` and `cpu_s` for all of them.
        server_cpu_s: the server's; `commands`: that it processed; `round_trips` and `marks`, which are
            not waited for: the worker's, if counted.
        rss_mib: memory of the contestant's processes at the end.
        real_tokens: of the tickets that had a backlog of 256 behind them; `padded_tokens`: as computed.
        labels: in the order of the tickets, None where the ticket was truncated.
        latencies_s: of the paced jobs that followed, or of the single calls of the raw loop.
    """

    who: str
    model: str
    kind: str
    jobs: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    commands: int = 0
    round_trips: int = 0
    marks: int = 0
    rss_mib: float = 0.0
    real_tokens: int = 0
    padded_tokens: int = 0
    labels: list[str | None] = field(default_factory=list, repr=False)
    latencies_s: list[float] = field(default_factory=list, repr=False)


def raw(mode: str, model: BenchModel, tickets: Sequence[Ticket], threads: int) -> Run:
    """Run the raw ONNX Runtime loop in a process of its own; mode `windows` or `single`."""
    request = {
        "mode": mode,
        "model": str(model.directory),
        "threads": threads,
        "texts": [ticket.text for ticket in tickets],
    }
    command = [sys.executable, "-m", "tests.benchmarks.raw"]
    answer = subprocess.run(
        command, input=json.dumps(request), text=True, stdout=subprocess.PIPE, check=True, cwd=REPOSITORY
    )
    outcome: Json = json.loads(answer.stdout)
    return Run("raw", model.name, mode, len(tickets), **outcome)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share: the server and where the workers' output goes."""

    broker: Broker
    logs: Path

    def throughput(  # noqa: PLR0913 - one run is all of these
        self,
        contestant: Contestant,
        model: BenchModel,
        tickets: Sequence[Ticket],
        *,
        kind: str = "throughput",
        pins: Sequence[int] = (),
        paced: Sequence[Ticket] = (),
    ) -> Run:
        """Time a contestant over a full queue; then, on the same workers, the `paced` tickets one by one."""
        counter = self.logs / "round-trips" if kind == "counted" else None
        run = Run(contestant.title, model.name, kind, len(tickets))
        with contestants.running(
            contestant, self.broker, model.directory, self.logs, pins=pins, counter=counter
        ) as workers:
            gauges = _Gauges(self.broker, workers, counter)
            self._burst(contestant, workload.tickets(WARM_UP_JOBS, seed=1), gauges)
            start, end, results = self._burst(contestant, tickets, gauges)
            run.rss_mib = gauges.rss_mib()
            if paced:
                run.latencies_s = latency.paced(self.broker, contestant, paced)
        _difference(run, start, end)
        _read(run, results)
        return run

    def _burst(
        self, contestant: Contestant, tickets: Sequence[Ticket], gauges: _Gauges
    ) -> tuple[_Reading, _Reading, list[Json]]:
        """Release the tickets as one backlog and await the last; readings before and after, the results."""
        arguments = [contestant.arguments(ticket) for ticket in tickets]
        ids, messages = self.broker.write(contestant.queue, contestant.task, arguments)
        self.broker.stage(messages)
        start = gauges.read(time.perf_counter())
        self.broker.release(contestant.queue)
        self.broker.wait_results(ids, gauges.check, RUN_TIMEOUT_S)
        end_s = time.perf_counter()
        time.sleep(SETTLE_S)
        return start, gauges.read(end_s), self.broker.results(ids)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Where the gauges stood at one moment."""

    time_s: float
    cpu_s: float
    server: Counters
    round_trips: int
    marks: int


@dataclass(frozen=True, slots=True)
class _Gauges:
    """Everything that is read before and after a burst."""

    broker: Broker
    workers: Sequence[WorkerProcess]
    counter: Path | None

    def read(self, time_s: float) -> _Reading:
        """Read all gauges; `time_s` is the moment that they stand for."""
        packets = self.counter.read_bytes() if self.counter else b""
        cpu_s = sum(worker.cpu_s() for worker in self.workers)
        return _Reading(time_s, cpu_s, self.broker.counters(), packets.count(b"."), packets.count(b"m"))

    def rss_mib(self) -> float:
        """Memory of all workers."""
        return sum(worker.rss_mib() for worker in self.workers)

    def check(self) -> None:
        """Raise BenchError if a worker has ended."""
        for worker in self.workers:
            worker.check()


def _difference(run: Run, start: _Reading, end: _Reading) -> None:
    run.wall_s = end.time_s - start.time_s
    run.cpu_s = end.cpu_s - start.cpu_s
    run.server_cpu_s = end.server.cpu_s - start.server.cpu_s
    run.commands = end.server.commands - start.server.commands
    run.round_trips = end.round_trips - start.round_trips
    run.marks = end.marks - start.marks


def _read(run: Run, results: Sequence[Json]) -> None:
    """Labels and, from this project's worker, the tokens of the tickets that had a backlog behind them."""
    for result in results:
        (ticket,) = result.get("results", [result])
        if ticket.get("error"):
            message = f"{run.who} answered {ticket['error']['code']} to a ticket of the workload"
            raise BenchError(message)
        run.labels.append(None if ticket.get("truncated") else ticket["label"])
    backed = len(results) - min(BACKLOG, len(results) // 2)  # a short run has less behind it
    timings = [result["timings"] for result in results[:backed] if "timings" in result]
    run.real_tokens = sum(timing["real_tokens"] for timing in timings)
    run.padded_tokens = sum(timing["padded_tokens"] for timing in timings)
