"""Classify in one process, without a broker: for edge devices, for debugging, to measure how fast this machine is."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from schemas.names import TASK_CLASSIFY
from tasks.app import load_workload
from worker.jobs import Job
from worker.lifecycle import build_engine
from worker.slots import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from worker.engine import Engine
    from worker.lifecycle import Workload
    from worker.settings import Settings

TICKETS_PER_JOB = 256
JOBS_IN_FLIGHT = 4


class _Ended:
    """Hears of the jobs' ends, for the one thread that waits for them."""

    def __init__(self) -> None:
        self.engine: Engine | None = None  # to stop, for whoever waits at a slot
        self._heard: SimpleQueue[Job | str] = SimpleQueue()
        self._ended: set[Job] = set()

    def wait_for(self, job: Job) -> None:
        """Block until `job` has ended."""
        while job not in self._ended:
            heard = self._heard.get()
            if isinstance(heard, str):
                raise RuntimeError(f"{heard}; see the log")  # noqa: TRY004 - not a wrong type
            self._ended.add(heard)
        self._ended.remove(job)

    def is_cancelled(self, _job: Job) -> bool:
        """Nobody cancels."""
        return False

    def started(self, jobs: Sequence[Job]) -> None:
        """Nobody waits for the start."""

    def finished(self, job: Job) -> None:
        """Wake the thread that waits."""
        self._heard.put(job)

    def running(self, jobs: Sequence[Job], *, alone: bool) -> None:
        """Nobody sweeps."""

    def dropped(self, job: Job) -> None:
        """Wake the thread that waits."""
        self._heard.put(job)

    def broken(self, reason: str) -> None:
        """Wake the thread that waits, with an error."""
        self._heard.put(reason)
        if self.engine is not None:
            Thread(target=self.engine.stop, args=(0.0,), daemon=True).start()  # not from one of its own threads


def classify_offline(settings: Settings, tickets: Iterable[Mapping[str, object]], **options: object) -> Iterator[Any]:
    """Yield the result of each ticket, in order, as `schemas.results.TicketResult` describes it.

    Args:
        settings: model, threads and batch limits; the broker is not used.
        tickets: as in a message; ids must be distinct within 256 neighbours.
        options: other fields of the message, such as `top_k`.

    Raises:
        ConfigError: the model is missing.
        MessageError: a ticket lacks its id, or an option is wrong.
    """
    workload = load_workload(settings)
    pipeline = workload.pipelines[TASK_CLASSIFY]
    ended = _Ended()
    engine = build_engine(workload, ended, settings)
    engine.start()
    stream = iter(tickets)
    running: deque[Job] = deque()
    try:
        while True:
            while len(running) < JOBS_IN_FLIGHT and (portion := list(islice(stream, TICKETS_PER_JOB))):
                running.append(Job("offline", pipeline, monotonic()))
                engine.submit(running[-1], (), {"tickets": portion, **options})
            if not running:
                return
            yield from _results(running.popleft(), ended)
    finally:
        engine.stop(0.0)


@contextmanager
def offline_slot(settings: Settings) -> Iterator[tuple[Workload, Slot]]:
    """Load the model and start an engine for a block: what a bulk task has of its worker, without one.

    Inside, a wait for the engine ends in `Draining` should it break.

    Raises:
        ConfigError: the model is missing.
    """
    workload = load_workload(settings)
    ended = _Ended()
    ended.engine = engine = build_engine(workload, ended, settings)
    engine.start()
    try:
        yield workload, Slot(engine, "offline", None, suspect=False)
    finally:
        engine.stop(0.0)


def _results(job: Job, ended: _Ended) -> list[Any]:
    ended.wait_for(job)
    if job.error is not None:
        raise job.error
    results: list[Any] = job.pipeline.complete(job)["results"]  # type: ignore[assignment] # always a list
    return results
