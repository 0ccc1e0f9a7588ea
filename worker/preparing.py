"""Opens messages and prepares their items, beside inference and fairly between jobs.

A portion holds items of many jobs, so a tokenizer works on many texts a call; a job gives at most `PORTION_PER_JOB`
items to each, so that a message of 10,000 tickets delays nobody, and it is prepared no further ahead than `lookahead`
items, nor than its allowance for what they hold, so that it costs little memory.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from worker.errors import ItemFailed
from worker.isolation import isolate, message_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from worker.jobs import Hold, Item, Job, Pipeline

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
    """A job some of whose items are not prepared yet.

    Attributes:
        job: the job.
        items: all of its items.
        taken: how many of them were taken to be prepared.
        ahead: how many of those have no outcome yet.
        holds: what those need, and what they gave rise to.
    """

    job: Job
    items: Sequence[Item]
    taken: int = 0
    ahead: int = 0
    holds: list[Hold] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.items) - self.taken

    def next_items(self, most: int) -> list[Item]:
        """Return the next items, at most so many, as far as the job's allowance has room for what they hold."""
        held_bytes = sum(hold.bytes for hold in self.holds)
        fitting: list[Item] = []
        for item in self.items[self.taken : self.taken + most]:
            if item.hold is not None:
                if held_bytes and held_bytes + item.hold.bytes > self.job.allowance_bytes:
                    break
                held_bytes += item.hold.bytes
            fitting.append(item)
        return fitting

    def take(self, most: int) -> list[Item]:
        """Take these items: they are ahead from now on."""
        items = self.next_items(most)
        self.taken += len(items)
        self.ahead += len(items)
        self.holds += [item.hold for item in items if item.hold is not None]
        return items


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
        """Take note how many items of each job got their outcome, so more of them may be prepared.

        A job whose holds have changed is there too, be it with 0.
        """
        with self._changed:
            for job, items in counts.items():
                opened = self._opened.get(job)
                if opened is not None:
                    opened.ahead -= items
                    opened.holds = [hold for hold in opened.holds if hold.items]
                    self._changed.notify()

    def backlog(self) -> int:
        """Return how many items on credit are not prepared yet; a message that is not opened counts as one."""
        with self._changed:
            arrived = sum(arrival.job.is_on_credit for arrival in self._arrivals)
            return arrived + sum(opened.left for opened in self._opened.values() if opened.job.is_on_credit)

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
        return opened.ahead < self._lookahead and (not opened.left or bool(opened.next_items(1)))

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
        opened = _Opened(job, job.items)
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
                items = opened.take(min(room, PORTION_PER_JOB))
                if items:
                    portion.setdefault(opened.job.pipeline, []).extend(items)
                room -= len(items)
                if opened.left:
                    self._opened[opened.job] = opened  # back to the end of the line
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
