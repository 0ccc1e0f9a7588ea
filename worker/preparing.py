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
        """Take note that items of these jobs are prepared while the context lasts; a suspect comes alone."""
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

    def submit(self, arrival: Arrival) -> None:
        """Let a message wait to be opened."""
        with self._changed:
            self._arrivals.append(arrival)
            self._changed.notify()

    def settled(self, job: Job, items: int) -> None:
        """Take note that `items` of `job` got their outcome, so more of it may be prepared."""
        with self._changed:
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
        with self._changed:
            arrivals = [self._arrivals.popleft() for _ in range(min(len(self._arrivals), ARRIVALS_PER_STEP))]
        for arrival in arrivals:
            self._open(arrival)
        for pipeline, items in self._portion().items():
            with self._sink.preparing(list(dict.fromkeys(item.job for item in items))):
                _prepare(pipeline, items)
            self._sink.prepared(items)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._arrivals or any(map(self._may_go_on, self._opened.values()))
            )
            return not self._closed

    def _may_go_on(self, opened: _Opened) -> bool:
        return opened.ahead < self._lookahead

    def _open(self, arrival: Arrival) -> None:
        job = arrival.job
        try:
            job.pipeline.open(job, arrival.args, arrival.kwargs)
        except BaseException as exc:  # noqa: BLE001 - becomes the job's outcome, whatever it is
            self._sink.failed(job, message_failure(exc))
            return
        job.pending = len(job.items)
        self._sink.opened(job)
        with self._changed:
            self._opened[job] = _Opened(job, iter(job.items), len(job.items))

    def _next(self) -> list[_Opened]:
        """Return the jobs that may be prepared next, in turn; a suspect only by itself."""
        ready = [opened for opened in self._opened.values() if self._may_go_on(opened)]
        return ready[:1] if ready and ready[0].job.suspect else [opened for opened in ready if not opened.job.suspect]

    def _portion(self) -> dict[Pipeline, list[Item]]:
        """Take up to a portion of items, in turns between the jobs."""
        portion: dict[Pipeline, list[Item]] = {}
        room = PORTION
        with self._changed:
            for opened in self._next():
                items = list(islice(opened.items, min(room, PORTION_PER_JOB)))
                if items:
                    portion.setdefault(opened.job.pipeline, []).extend(items)
                opened.ahead += len(items)
                opened.left -= len(items)
                room -= len(items)
                del self._opened[opened.job]
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
