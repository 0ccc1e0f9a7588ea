"""One bulk run of one worker or two: planned, labelled and written on the S3 server, then read back and checked.

A fresh worker has made a small run before the clock starts. The clock starts with the answer of `bulk.classify`, which
leaves in one commit with the shards' messages, and stops with the last shard's result, by when `_SUCCESS` is there.
Planning, before, is told apart: it costs the same however long the run is. What a run means is for `bulk_measures`.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from schemas.names import QUEUE_BULK, TASK_BULK_CLASSIFY
from tasks.bulk.attempts import task_id
from tests.benchmarks import contestants, latency, workload
from tests.benchmarks.broker import RESULT_KEY, BenchError
from tests.benchmarks.runs import SETTLE_S, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.benchmarks.broker import Broker
    from tests.benchmarks.contestants import Contestant
    from tests.benchmarks.lake import Lake
    from tests.benchmarks.models import BenchModel
    from tests.benchmarks.processes import WorkerProcess
    from tests.benchmarks.workload import Ticket
    from tests.s3_proxy import S3Proxy
    from tests.s3_servers import S3Server

WARM_UP_ROWS = 512
WARM_UP_TICKETS = 16
WARM_UP_SHARD_ROWS = 64  # two workers get some each
PLANNING_TIMEOUT_S = 60.0
PLANNING_POLL_S = 0.002
RUN_TIMEOUT_S = 900.0
INTERACTIVE_PER_S = 5.0


@dataclass(slots=True)
class BulkRun(Run):
    """A run of which every job is a row of a shard.

    Attributes:
        shards: how many.
        parts: files that it left.
        planning_s: from the request to the answer; `planning_cpu_s`: at the workers.
        requests: to the store while the shards ran, where they were counted; `planning_requests`: before.
    """

    shards: int = 0
    parts: int = 0
    planning_s: float = 0.0
    planning_cpu_s: float = 0.0
    planning_requests: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What is labelled: tickets in one file, cut into shards."""

    uri: str
    tickets: Sequence[Ticket]
    shard_rows: int


class _Sent(NamedTuple):
    """A run whose shards are on the queue."""

    output: str
    shard_ids: list[str]
    planning_s: float


@dataclass(frozen=True, slots=True)
class BulkBench:
    """What all runs share: the servers, and where the workers' output goes."""

    broker: Broker
    server: S3Server
    proxy: S3Proxy
    ours: Contestant
    logs: Path
    lake: Lake
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def work(self, tickets: Sequence[Ticket], shard_rows: int) -> Work:
        """Store the tickets."""
        return Work(self.lake.put(f"tickets-{next(self.numbers)}", tickets), tickets, shard_rows)

    def label(self, model: BenchModel, work: Work, *, kind: str = "throughput", pins: Sequence[int] = ()) -> BulkRun:
        """Label the work with fresh workers."""
        with self._workers(model, self.server.endpoint, pins) as workers:
            self._warm_up(workers)
            return self._timed(model, work, workers, kind)

    def near_and_far(self, model: BenchModel, work: Work, delay_s: float, *, far_first: bool) -> Iterator[BulkRun]:
        """Label the work twice with the same fresh worker: over the plain store, and over one `delay_s` farther."""
        with self._workers(model, self.proxy.endpoint, ()) as workers:
            self._warm_up(workers)
            for is_far in (far_first, not far_first):
                self.proxy.delay_s = delay_s if is_far else 0.0
                yield self._timed(model, work, workers, "far" if is_far else "near")
        self.proxy.delay_s = 0.0

    def interactive(self, model: BenchModel, work: Work, tickets: Sequence[Ticket]) -> BulkRun:
        """Send single tickets while a fresh worker labels the work, which is not awaited.

        Raises:
            BenchError: the run ended before the last ticket.
        """
        run = BulkRun(self.ours.title, model.name, "interactive", len(tickets))
        with self._workers(model, self.server.endpoint, ()) as workers:
            self._warm_up(workers)
            latency.paced(self.broker, self.ours, workload.tickets(WARM_UP_TICKETS, seed=1))
            sent = self._send(work, workers)
            start_s, cpu_s = time.perf_counter(), _cpu_s(workers)
            run.latencies_s = latency.paced(self.broker, self.ours, tickets, INTERACTIVE_PER_S)
            run.wall_s, run.cpu_s = time.perf_counter() - start_s, _cpu_s(workers) - cpu_s
            run.shards = len(sent.shard_ids)
            if self.broker.client.exists(*_keys(sent.shard_ids)) == run.shards:
                raise BenchError("the bulk run ended before the last single ticket: give it more rows")
        return run

    def _workers(
        self, model: BenchModel, endpoint: str, pins: Sequence[int]
    ) -> AbstractContextManager[list[WorkerProcess]]:
        ours = replace(self.ours, env={**self.ours.env, **self.server.environment(endpoint)})
        return contestants.running(ours, self.broker, model.directory, self.logs, pins=pins)

    def _timed(self, model: BenchModel, work: Work, workers: Sequence[WorkerProcess], kind: str) -> BulkRun:
        run = BulkRun(self.ours.title, model.name, kind, len(work.tickets))
        before_s, seen_before = _cpu_s(workers), len(self.proxy.seen)
        sent = self._send(work, workers)
        start_s, cpu_s, seen = time.perf_counter(), _cpu_s(workers), len(self.proxy.seen)
        self._await(sent, workers)
        run.wall_s = time.perf_counter() - start_s
        run.planning_requests, run.requests = seen - seen_before, len(self.proxy.seen) - seen
        time.sleep(SETTLE_S)
        run.cpu_s = _cpu_s(workers) - cpu_s
        run.planning_s, run.planning_cpu_s = sent.planning_s, cpu_s - before_s
        run.rss_mib = sum(worker.peak_rss_mib() for worker in workers)
        written = self.lake.written(sent.output, work.tickets)
        run.shards, run.parts, run.labels = len(sent.shard_ids), written.parts, written.labels
        return run

    def _warm_up(self, workers: Sequence[WorkerProcess]) -> None:
        self._await(self._send(self.work(workload.tickets(WARM_UP_ROWS, seed=1), WARM_UP_SHARD_ROWS), workers), workers)

    def _send(self, work: Work, workers: Sequence[WorkerProcess]) -> _Sent:
        """Have the run planned; its shards are on the queue."""
        output = self.lake.output(f"run-{next(self.numbers)}")
        request = {
            "inputs": [work.uri],
            "output": output,
            "text": "text",
            "id": "id",
            "shard_rows": work.shard_rows,
            "dedupe": False,
        }
        start_s = time.perf_counter()
        job_id = self.broker.app.send_task(TASK_BULK_CLASSIFY, kwargs=request, queue=QUEUE_BULK).id
        while not self.broker.client.exists(*_keys([job_id])):
            for worker in workers:
                worker.check()
            if time.perf_counter() > start_s + PLANNING_TIMEOUT_S:
                raise BenchError(f"the run was not planned within {PLANNING_TIMEOUT_S:.0f} s")
            time.sleep(PLANNING_POLL_S)
        planning_s = time.perf_counter() - start_s
        (answer,) = self.broker.results([job_id])
        return _Sent(output, [task_id(job_id, shard, 0) for shard in range(answer["shards"])], planning_s)

    def _await(self, sent: _Sent, workers: Sequence[WorkerProcess]) -> None:
        """Block until every shard has ended.

        Raises:
            BenchError: one failed, or a worker ended.
        """

        def check() -> None:
            for worker in workers:
                worker.check()

        self.broker.wait_results(sent.shard_ids, check, RUN_TIMEOUT_S)
        self.broker.results(sent.shard_ids)


def _cpu_s(workers: Sequence[WorkerProcess]) -> float:
    return sum(worker.cpu_s() for worker in workers)


def _keys(ids: Sequence[str]) -> list[str]:
    return [f"{RESULT_KEY}{one}" for one in ids]
