"""Which items run next: pure decisions, no threads, no I/O, a clock that is injected.

`worker.planner` cuts a window of waiting items into batches of little padding. `MicroBatcher` decides what goes into
the window, and which of the planned batches runs next:

- bands: interactive before normal before bulk; a band that waited `ageing_s` without a batch counts as one more urgent;
- fair between jobs: jobs that ran nothing yet and jobs that ran before take turns, so one ticket waits at most one
  batch behind a message of 10,000, and a stream of single tickets cannot starve that message either;
- identical inputs of a window share one row; an item over the token budget runs alone; deadlines are checked as the
  batch forms;
- batches that were planned beforehand (a bulk shard's) stay as they are, and take turns with what waits at their band.

It knows neither models nor messages, and is not thread-safe: the engine holds a lock around it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from schemas.names import Band
from worker.planner import Batch, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from worker.jobs import Item, Job
    from worker.planner import BatchPolicy


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    Attributes:
        batch: to run at once, or None.
        dropped: jobs that nobody waits for any more, expired or cancelled; all their items have left the batcher.
        wait_s: without a batch: when to ask again at the latest; None = after the next `add`.
    """

    batch: Batch | None = None
    dropped: tuple[Job, ...] = ()
    wait_s: float | None = None


class MicroBatcher:
    """Chooses the next batch among the waiting items. Not thread-safe.

    Args:
        policy: the limits.
        clock: monotonic seconds.
        is_cancelled: asked for each job of a batch as it forms; cheap.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        clock: Callable[[], float],
        is_cancelled: Callable[[Job], bool] = lambda _job: False,
    ) -> None:
        self._clock = clock
        self._is_cancelled = is_cancelled
        self._bands = {level: _Band(level, policy) for level in Band}
        self._planned = _Planned(Band.BULK, policy)

    def backlog(self) -> int:
        """Return the number of waiting items of jobs on credit."""
        return sum(band.on_credit for band in self._bands.values())

    def add(self, items: Iterable[Item]) -> None:
        """Let prepared items wait for their batch."""
        now_s = self._clock()
        for item in items:
            item.queued_s = now_s
            self._bands[item.job.band].add(item)

    def add_planned(self, batches: Iterable[Batch]) -> None:
        """Let batches that are planned already, each of one job, wait at the band of bulk work."""
        now_s = self._clock()
        for batch in batches:
            self._planned.add(batch, now_s)

    def discard(self, job: Job) -> list[Item]:
        """Take every waiting item of `job` back."""
        return self._bands[job.band].discard(job) + self._planned.discard(job)

    def urgency(self) -> tuple[float, float]:
        """Return a sort key, most urgent first: of the band whose turn it is, its level and since when it waits."""
        now_s = self._clock()
        band = self._most_urgent(now_s)
        return (float("inf"), now_s) if band is None else band.urgency(now_s)

    def take(self) -> Decision:
        """Decide what runs now; the items of the decision no longer wait."""
        now_s = self._clock()
        dropped: list[Job] = []
        while (band := self._most_urgent(now_s)) is not None:
            job = band.head.job
            if not self._is_unwanted(job, now_s):
                return Decision(self._wanted(band.pop(now_s), now_s, dropped), tuple(dropped))
            band.discard(job)  # before it takes a turn
            dropped.append(job)
        delays_s = (band.delay_s(now_s) for band in self._bands.values() if len(band))  # what is planned never waits
        return Decision(None, tuple(dropped), min(delays_s, default=None))

    def _most_urgent(self, now_s: float) -> _Band | _Planned | None:
        bands: tuple[_Band | _Planned, ...] = (*self._bands.values(), self._planned)
        ready = (band for band in bands if len(band) and band.delay_s(now_s) <= 0)
        return min(ready, key=lambda band: band.urgency(now_s), default=None)

    def _wanted(self, batch: Batch, now_s: float, dropped: list[Job]) -> Batch:
        """Drop the jobs of the batch that nobody waits for; return what is left: at least its head."""
        unwanted = [job for job in batch.jobs if self._is_unwanted(job, now_s)]
        if not unwanted:
            return batch
        for job in unwanted:
            self.discard(job)
        dropped.extend(unwanted)
        rows = [tuple(item for item in row if item.job not in unwanted) for row in batch.rows]
        rows = [row for row in rows if row]
        return Batch(tuple(rows), max(row[0].length for row in rows))

    def _is_unwanted(self, job: Job, now_s: float) -> bool:
        return (job.deadline_s is not None and job.deadline_s <= now_s) or self._is_cancelled(job)


class _Band:
    """The waiting items of one priority band, by job, and the plan made for the first of them."""

    def __init__(self, level: Band, policy: BatchPolicy) -> None:
        self._level = level
        self._policy = policy
        self._fresh: dict[Job, dict[Item, None]] = {}  # jobs that ran nothing yet: first come, first served
        self._resumed: dict[Job, dict[Item, None]] = {}  # jobs that did: least recently served first
        self._planned: dict[Item, Batch] = {}
        self._fresh_is_next = True
        self._served_s = float("-inf")
        self._items = 0
        self._tokens = 0
        self.on_credit = 0  # of the items

    def __len__(self) -> int:
        return self._items

    def add(self, item: Item) -> None:
        # Another lane may have served a job that is still fresh here.
        jobs = self._fresh if item.job in self._fresh or not item.job.served else self._resumed
        jobs.setdefault(item.job, {})[item] = None
        self._items += 1
        self._tokens += item.length
        self.on_credit += item.job.is_on_credit

    def discard(self, job: Job) -> list[Item]:
        items = list(self._jobs_with(job).get(job, ()))
        for item in items:
            self._remove(item)
        self._planned.clear()
        return items

    def urgency(self, now_s: float) -> tuple[int, float]:
        """Sort key, most urgent first: the level less its ageing, then how long the band has waited for a batch."""
        return _urgency(self._level, max(self._served_s, self._oldest_s()), now_s, self._policy)

    def delay_s(self, now_s: float) -> float:
        """How much longer the band waits for company; 0 or less = not at all."""
        policy = self._policy
        if self._items >= policy.max_batch_size or self._tokens >= policy.max_batch_tokens:
            return 0.0
        return self._oldest_s() + policy.max_queue_delay_s - now_s

    @property
    def head(self) -> Item:
        """The item whose turn it is."""
        return next(iter(next(iter(self._next().values()))))

    def pop(self, now_s: float) -> Batch:
        """Remove and return the batch of the head."""
        head, jobs = self.head, self._next()
        # Jobs that ran before get the next turn only if they were waiting for this one.
        self._fresh_is_next = jobs is self._resumed or not self._resumed
        if head not in self._planned:
            self._plan(jobs)
        batch = self._planned[head]
        for item in batch.items:
            del self._planned[item]
            self._remove(item)
        self._rotate(batch.jobs)
        self._served_s = now_s
        return batch

    def _next(self) -> dict[Job, dict[Item, None]]:
        return self._fresh if self._fresh and (self._fresh_is_next or not self._resumed) else self._resumed

    def _jobs_with(self, job: Job) -> dict[Job, dict[Item, None]]:
        return self._fresh if job in self._fresh else self._resumed

    def _plan(self, first: dict[Job, dict[Item, None]]) -> None:
        """Plan a window of items, those of `first` and of the other jobs in turns."""
        policy = self._policy
        other = self._resumed if first is self._fresh else self._fresh
        window = islice(
            chain.from_iterable(_in_turns(_by_rounds(first, policy), _by_rounds(other, policy))),
            policy.planning_window,
        )
        groups: dict[Job | None, list[Item]] = {}
        for item in window:
            groups.setdefault(item.job if item.job.suspect else None, []).append(item)
        self._planned.clear()
        for items in groups.values():
            for batch in cut(items, policy):
                self._planned.update((item, batch) for item in batch.items)

    def _remove(self, item: Item) -> None:
        jobs = self._jobs_with(item.job)
        items = jobs[item.job]
        del items[item]
        if not items:
            del jobs[item.job]
        self._items -= 1
        self._tokens -= item.length
        self.on_credit -= item.job.is_on_credit

    def _rotate(self, served: Iterable[Job]) -> None:
        """Put the jobs of a batch behind the others."""
        for job in served:
            items = self._jobs_with(job).pop(job, None)
            job.served = True
            if items:
                self._resumed[job] = items

    def _oldest_s(self) -> float:
        # Jobs come in the order of their first items; once served they go round, and any may hold the oldest.
        oldest = chain(islice(self._fresh.values(), 1), self._resumed.values())
        return min(next(iter(items)).queued_s for items in oldest)


class _Planned:
    """Batches that were planned beforehand: the job that began first goes first, so that it also ends first."""

    def __init__(self, level: Band, policy: BatchPolicy) -> None:
        self._level = level
        self._policy = policy
        self._waiting: dict[Job, deque[Batch]] = {}
        self._since_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, batch: Batch, now_s: float) -> None:
        if not self._waiting:
            self._since_s = now_s
        self._waiting.setdefault(batch.head.job, deque()).append(batch)

    def discard(self, job: Job) -> list[Item]:
        return [item for batch in self._waiting.pop(job, ()) for item in batch.items]

    def urgency(self, now_s: float) -> tuple[int, float]:
        return _urgency(self._level, self._since_s, now_s, self._policy)

    def delay_s(self, _now_s: float) -> float:
        return 0.0

    @property
    def head(self) -> Item:
        return self._waiting[self._first()][0].head

    def pop(self, now_s: float) -> Batch:
        job = self._first()
        batch = self._waiting[job].popleft()
        if not self._waiting[job]:
            del self._waiting[job]
        self._since_s = now_s
        return batch

    def _first(self) -> Job:
        return min(self._waiting, key=lambda job: job.enqueued_s)


def _urgency(level: Band, since_s: float, now_s: float, policy: BatchPolicy) -> tuple[int, float]:
    """Sort key, most urgent first: the level less its ageing, then since when the band has waited for a batch."""
    return level - int((now_s - since_s) / policy.ageing_s), since_s


def _by_rounds(jobs: dict[Job, dict[Item, None]], policy: BatchPolicy) -> Iterator[list[Item]]:
    """Yield up to a batch of items of each job in turn, round after round."""
    waiting = [iter(items) for items in islice(jobs.values(), policy.planning_window)]
    while waiting:
        left = []
        for items in waiting:
            portion = list(islice(items, policy.max_batch_size))
            if portion:
                yield portion
                left.append(items)
        waiting = left


def _in_turns(first: Iterator[list[Item]], second: Iterator[list[Item]]) -> Iterator[list[Item]]:
    """Alternate between two iterators until both have ended."""
    nothing: list[Item] = []
    for pair in zip_longest(first, second, fillvalue=nothing):
        yield from pair
