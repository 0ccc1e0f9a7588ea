"""Opens messages and prepares their items, beside inference and fairly between jobs.

A portion holds items of many jobs, so a tokenizer works on many texts a call; a job gives at most `PORTION_PER_JOB`
items to each, so that a message of 10,000 tickets delays nobody, and it is prepared no further ahead than `lookahead`
items, so that it costs little memory.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from worker.errors import ItemFailed
from worker.isolation import isolate, message_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from worker.jobs import Item, Job, Pipeline

PORTION = 256
PORTION_PER_JOB = 64
ARRIVALS_PER_STEP = 64


class Sink(Protocol):
    """Where prepared items go; the engine."""

    def prepared(self, items: Sequence[Item]) -> None:
        """Take items that are ready to run, or already have an outcome."""
        ...

    def opened(self, job: Job) -> None:
        """Take note that the job's items are known."""
        ...

    def failed(self, job: Job, error: BaseException) -> None:
        """Take a job whose message is wrong as a whole."""
        ...

    def preparing(self, jobs: Sequence[Job]) -> AbstractContextManager[None]:
        """Take note that these jobs are opened or prepared while the context lasts; a suspect comes alone."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message as it came."""

    job: Job
    args: Sequence[object]
    kwargs: Mapping[str, object]


@dataclass(slots=True, eq=False)
class _Opened:
    """A job some of whose items are not prepared yet."""

    job: Job
    items: Iterator[Item]
    left: int
    ahead: int = 0


class Preparer:
    """The queue in front of the batcher. `submit`, `settled` and `forget` are thread-safe and never block.

    Args:
        sink: takes what is prepared; called without any lock held.
        lookahead: prepared items of one job that may wait for their outcome.
    """

    def __init__(self, sink: Sink, lookahead: int) -> None:
        self._sink = sink
        self._lookahead = lookahead
        self._arrivals: deque[Arrival] = deque()
        self._opened: dict[Job, _Opened] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._idle = False

    def submit(self, arrival: Arrival) -> None:
        """Let a message wait to be opened."""
        self._arrivals.append(arrival)
        if self._idle:  # set before the preparer looks for arrivals, so one of the two sees the other
            with self._changed:
                self._changed.notify()

    def settled(self, counts: Mapping[Job, int]) -> None:
        """Take note how many items of each job got their outcome, so more of them may be prepared."""
        with self._changed:
            for job, items in counts.items():
                opened = self._opened.get(job)
                if opened is not None:
                    opened.ahead -= items
                    self._changed.notify()

    def backlog(self) -> int:
        """Return how many items are not prepared yet; a message that is not opened counts as one."""
        with self._changed:
            return len(self._arrivals) + sum(opened.left for opened in self._opened.values())

    def forget(self, job: Job) -> None:
        """Prepare no more items of `job`."""
        with self._changed:
            self._opened.pop(job, None)

    def close(self) -> None:
        """End `run`, after the step that it is in."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Work until closed; the body of the preparer's thread."""
        while self._wait_for_work():
            self.step()

    def step(self) -> None:
        """Open some arrivals and prepare one portion of items."""
        arrivals, ready = self._turn()
        jobs = [arrival.job for arrival in arrivals] + [opened.job for opened in ready]
        if not jobs:
            return
        with self._sink.preparing(jobs):
            for arrival in arrivals:
                ready += self._open(arrival)
            portion = self._portion(ready)
            for pipeline, items in portion.items():
                _prepare(pipeline, items)
            for items in portion.values():
                self._sink.prepared(items)

    def _turn(self) -> tuple[list[Arrival], list[_Opened]]:
        """Return what to open now, and the opened jobs to prepare more of, in turn; a suspect only by itself."""
        with self._changed:
            ready = [opened for opened in self._opened.values() if self._may_go_on(opened)]
            if ready and ready[0].job.suspect:
                return [], ready[:1]
            if self._arrivals and self._arrivals[0].job.suspect:
                return [self._arrivals.popleft()], []
            arrivals: list[Arrival] = []
            while len(arrivals) < ARRIVALS_PER_STEP and self._arrivals and not self._arrivals[0].job.suspect:
                arrivals.append(self._arrivals.popleft())
            return arrivals, [opened for opened in ready if not opened.job.suspect]

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._idle = True
            self._changed.wait_for(
                lambda: self._closed or self._arrivals or any(map(self._may_go_on, self._opened.values()))
            )
            self._idle = False
            return not self._closed

    def _may_go_on(self, opened: _Opened) -> bool:
        return opened.ahead < self._lookahead

    def _open(self, arrival: Arrival) -> list[_Opened]:
        """Open a message; return it, or nothing if it is wrong as a whole."""
        job = arrival.job
        try:
            job.pipeline.open(job, arrival.args, arrival.kwargs)
        except BaseException as exc:  # noqa: BLE001 - becomes the job's outcome, whatever it is
            self._sink.failed(job, message_failure(exc))
            return []
        job.pending = len(job.items)
        self._sink.opened(job)
        opened = _Opened(job, iter(job.items), len(job.items))
        with self._changed:
            self._opened[job] = opened
        return [opened]

    def _portion(self, ready: Sequence[_Opened]) -> dict[Pipeline, list[Item]]:
        """Take up to a portion of items of these jobs, in turn."""
        portion: dict[Pipeline, list[Item]] = {}
        room = PORTION
        with self._changed:
            for opened in ready:
                if self._opened.pop(opened.job, None) is None:
                    continue  # forgotten meanwhile
                items = list(islice(opened.items, min(room, PORTION_PER_JOB)))
                if items:
                    portion.setdefault(opened.job.pipeline, []).extend(items)
                opened.ahead += len(items)
                opened.left -= len(items)
                room -= len(items)
                if room == 0 or len(items) == PORTION_PER_JOB:
                    self._opened[opened.job] = opened  # there may be more: back to the end of the line
                if room == 0:
                    break
        return portion


def _prepare(pipeline: Pipeline, items: Sequence[Item]) -> None:
    def run(rows: Sequence[Item]) -> Sequence[object]:
        pipeline.prepare(rows)
        return rows

    for item, outcome in zip(items, isolate(items, run), strict=True):
        if isinstance(outcome, ItemFailed):
            item.outcome = outcome
