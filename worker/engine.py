"""From job to outcomes: validate and prepare, batch, run, bisect.

Threads, and what each may block on:

- the caller of `submit` (Celery's event loop): nothing;
- one preparer: opens messages (schema) and prepares their items (tokens), in portions that are fair between jobs and no
  further ahead than the batcher needs, so a message of 10,000 costs little memory and delays nobody;
- R runners: take a batch, run the model on the one shared session, settle the outcomes;
- whoever calls `run_planned` (a bulk shard's thread): nothing; it waits for its rows where it likes;
- one watchdog: cancels a batch that runs past its limit; a runner that ignores that is reported as stuck.

A failing batch is bisected until the culprit stands alone, so every item gets exactly one outcome, a result or
`ItemFailed`, and neighbours never share a failure. `MemoryError` and the Rust panics of a tokenizer, which are no
`Exception`, end the item and not the thread. The engine knows neither Celery nor tickets.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from schemas.names import Band
from worker.errors import Cancelled, Draining, ItemFailed
from worker.floor import Floor
from worker.isolation import failure, isolate
from worker.lanes import Lanes
from worker.metering import Meter
from worker.metrics import STAGE
from worker.preparing import Arrival, Preparer
from worker.roster import Roster
from worker.stats import Stats, attribute, size_of, tally_batch
from worker.tallies import Tallies
from worker.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from worker.jobs import Item, Job
    from worker.lanes import Lane
    from worker.listening import Listener
    from worker.planner import Batch

log = structlog.get_logger(__name__)

CANCELLED_GRACE_S = 2.0  # for a cancelled batch to leave the model


class Engine:
    """Runs jobs. `submit` never blocks; everything else happens in its threads.

    Args:
        lanes: by name; an item's `lane` says which one runs it.
        listener: told what becomes of each job.
        runners: threads that run batches.
        batch_timeout_s: a batch that runs longer is cancelled, and bisected; what its lane may wait comes on top.
        stuck_grace_s: a cancelled batch that runs this much longer breaks the engine.
        tallies: where batches and stages are counted; None = nobody asks.
        meter: where it is measured who is busy for whom; None = nobody asks.
    """

    def __init__(  # noqa: PLR0913 - what it runs and its limits, one each
        self,
        lanes: Mapping[str, Lane],
        listener: Listener,
        *,
        runners: int,
        batch_timeout_s: float = 60.0,
        stuck_grace_s: float = 20.0,
        tallies: Tallies | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.lanes = dict(lanes)
        self.runners = runners
        self._listener = listener
        lookahead = 2 * max(lane.policy.planning_window for lane in lanes.values())
        self._preparer = Preparer(self, lookahead)
        self._watchdog = Watchdog(batch_timeout_s, stuck_grace_s, lambda: listener.broken("a model call is stuck"))
        self._lock = threading.Lock()
        self._waiting = Lanes(lanes, self._lock, listener.is_cancelled)
        self._active = Roster()
        self._planned: set[Job] = set()  # parts of messages that run elsewhere; no message of ours
        self._closing = False
        self._floor = Floor()
        self.stats = Stats()
        self.tallies = tallies or Tallies()
        self.meter = meter or Meter()
        self._unit_lanes = {name for name, lane in lanes.items() if lane.is_unit}
        self._preparing_since_s: float | None = None
        bodies: dict[str, Callable[[], None]] = {"preparer": self._preparer.run}
        bodies |= {name: partial(self._run, lanes) for name, lanes in self._waiting.crews(runners).items()}
        self._threads = [
            threading.Thread(target=self._guard, args=(body,), name=name, daemon=True) for name, body in bodies.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        self._watchdog.start()
        for thread in self._threads:
            thread.start()

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that end when the engine is stopped, and not before."""
        return [self._watchdog.thread, *self._threads]

    def longest_call_s(self) -> float:
        """Return for how long the oldest running batch, or the portion that is prepared, runs. Does not block."""
        since_s = self._preparing_since_s
        return max(self._watchdog.longest_s(), 0.0 if since_s is None else monotonic() - since_s)

    def units_per_s(self) -> float:
        """Return how many tickets or pages all runners together get done when busy; 0 = nobody knows yet."""
        return self.stats.pace.per_s * self.runners

    def jobs(self, band: Band = Band.BULK) -> int:
        """Return how many messages on credit, of this band or a more urgent one, are here and have not ended."""
        return self._active.on_credit(band)

    def backlog(self) -> int:
        """Return how many items on credit wait; a message that is not opened yet counts as one."""
        with self._lock:
            waiting = self._waiting.backlog()
        return waiting + self._preparer.backlog()

    def submit(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Take a message; `listener` hears of its end."""
        with self._lock:
            self._active.add(job)
        self._preparer.submit(Arrival(job, args, kwargs))

    def refuse(self, job: Job, error: BaseException) -> None:
        """Take a message that is known to be wrong as a whole; `listener` hears of its end."""
        with self._lock:
            self._active.add(job)
        self.failed(job, error)

    def run_planned(self, lane: str, job: Job, batches: Sequence[Batch]) -> None:
        """Run batches of `job` as they are, at the band of bulk work; its `waiter` hears when all have ended.

        What the waiter is told: nothing, each item has its outcome then; `Draining`, the engine stopped before;
        `Cancelled`, nobody wants the job any more.

        Raises:
            Draining: the engine is stopping.
        """
        with self._lock:
            if self._closing:
                raise Draining("the worker is stopping")
            self._planned.add(job)
            self._waiting.add_planned(lane, batches)

    def abandon(self, job: Job) -> None:
        """Forget a job of `run_planned`: what of it runs now is the last, and its `waiter` hears nothing more."""
        with self._lock:
            self._forget(job)

    def drop_waiting(self) -> list[Job]:
        """Forget, and return, every job none of whose items has been in a batch."""
        with self._lock:
            waiting = [job for job in self._active if not job.served]
            for job in waiting:
                self._forget(job)
        return waiting

    def drop(self, job: Job) -> bool:
        """Forget `job` if nothing of it has run; return whether so."""
        with self._lock:
            if job.served or job not in self._active:
                return False
            self._forget(job)
        return True

    def stop(self, timeout_s: float) -> list[Job]:
        """Finish the running batches and stop; return the jobs that did not end, and now never will.

        Blocks for at most about `timeout_s`; batches that run longer are cancelled, which is no outcome.
        """
        deadline_s = monotonic() + timeout_s
        self._preparer.close()
        with self._lock:
            self._closing = True
            self._waiting.wake_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - monotonic()))
        with self._lock:
            left, unheard = list(self._active), list(self._planned)
            self._active = Roster()
            self._planned.clear()
        self._watchdog.stop()
        deadline_s = monotonic() + CANCELLED_GRACE_S
        for thread in self._threads:  # one inside ONNX Runtime when the interpreter ends would abort the process
            thread.join(max(0.0, deadline_s - monotonic()))
        for job in unheard:
            _tell(job, Draining("the worker is stopping"))
        return left

    # What the preparer tells us.

    def opened(self, job: Job) -> None:
        """Take note of a job whose items are known, and of one kind."""
        if not job.items or self._units(job.items[:1]):
            self.meter.opened(job, len(job.items))
        if not job.items:
            self._end([job])

    def failed(self, job: Job, error: BaseException) -> None:
        """End a job whose message is wrong as a whole."""
        job.error = error
        self.meter.opened(job, 0)
        with self._lock:
            if job not in self._active:  # dropped while it was opened
                return
        self._listener.started([job])
        self._end([job])

    @contextmanager
    def preparing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Let the preparer work on these jobs; on a suspect only while nothing else runs."""
        alone = jobs[0].suspect
        with self._floor.held(alone=alone):
            self._listener.running(jobs, alone=alone)
            if jobs[0].is_part:  # a slot's thread; it may have to wait for a store
                yield
            else:
                self._preparing_since_s = began_s = monotonic()
                yield
                self._preparing_since_s = None
                self.tallies.observe(STAGE, ("prepare",), (monotonic() - began_s,))
            self._listener.running((), alone=alone)

    def prepared(self, items: Sequence[Item]) -> None:
        """Let prepared items wait for their batch; settle those that failed already."""
        with self._lock:
            for job in {item.job for item in items if item.job not in self._active}:
                self._preparer.forget(job)  # dropped while it was opened
            items = [item for item in items if item.job in self._active]
            failed = [item for item in items if item.outcome is not None]  # a moment later, others may have run
            self._waiting.add([item for item in items if item.outcome is None])
        self.meter.settled(self._units(failed))
        self._settle(failed)

    # What a runner does.

    def _run(self, lanes: Sequence[str]) -> None:
        while (work := self._next_batch(lanes)) is not None:
            lane, batch = work
            try:
                with self._floor.held(alone=batch.is_suspect):
                    self._listener.running(batch.jobs, alone=batch.is_suspect)
                    self._run_batch(lane, batch)
                    if batch.is_suspect:
                        self._listener.running((), alone=True)
            except Draining:  # `stop` waited no longer for this batch; its jobs are handed back
                return

    def _next_batch(self, lanes: Sequence[str]) -> tuple[Lane, Batch] | None:
        """Wait for a batch of one of the lanes; None = the engine is closing."""
        with self._lock:
            while not self._closing:
                turn = self._waiting.take(lanes)
                for job in turn.dropped:
                    self._drop(job)
                if turn.lane is not None and turn.batch is not None:
                    return turn.lane, turn.batch
                self._waiting.wait(lanes, turn.wait_s)
            return None

    def _run_batch(self, lane: Lane, batch: Batch) -> None:
        jobs = list({item.job: None for item in batch.items})
        with self._lock:
            first = [job for job in jobs if job.batches == 0 and not job.is_part]
            for job in jobs:
                job.batches += 1
        started_s = monotonic()
        if first:
            for job in first:
                job.queue_wait_s = max(0.0, started_s - job.enqueued_s)
            self.tallies.observe(STAGE, ("queue_wait",), [job.queue_wait_s for job in first])
        self._listener.started(first)
        with self.meter.running(lane, batch, self.runners):
            outcomes = isolate(batch.rows, lambda rows: self._call(lane, rows))
        elapsed_s, size = monotonic() - started_s, size_of(batch)
        with self._lock:
            attribute(batch, jobs, elapsed_s, is_runner=not lane.threads)
            self.stats.add(lane, size, elapsed_s)
        tally_batch(self.tallies, lane, batch, size, started_s=started_s, elapsed_s=elapsed_s)
        for row, outcome in zip(batch.rows, outcomes, strict=True):
            for item in row:
                item.outcome, item.features = outcome, None
        if lane.spawns:
            self._spawn(batch.items)
        self._settle(batch.items)

    def _spawn(self, items: Sequence[Item]) -> None:
        """Let the items that these outcomes give rise to wait for their own batches, or settle them at once."""
        spawned = [child for item in items for child in _children(item)]
        with self._lock:
            spawned = [child for child in spawned if child.job in self._active or child.job in self._planned]
            for child in spawned:
                child.job.pending += 1
                if child.hold is not None:
                    child.hold.items += 1
            waiting = [child for child in spawned if child.outcome is None]
            self._waiting.add(waiting)
        units = Counter(child.job for child in self._units(waiting))
        for item in items:
            is_root = not (item.is_spawned or item.job.is_part)
            if is_root and item.lane not in self._unit_lanes:  # such as a document of a message: so many pages
                self.meter.opened(item.job, units.pop(item.job, 0), part=1 / max(len(item.job.items), 1))
        self._settle([child for child in spawned if child.outcome is not None])

    def _units(self, items: Sequence[Item]) -> list[Item]:
        """Return those of `items` that the size of a message is counted in."""
        return [item for item in items if item.lane in self._unit_lanes]

    def _call(self, lane: Lane, rows: Sequence[tuple[Item, ...]]) -> Sequence[object]:
        with self._watchdog.watch(lane.waits_s) as cancellation:
            return lane.model.run([row[0].features for row in rows], cancellation)

    def _settle(self, items: Sequence[Item]) -> None:
        """Count the outcomes of `items`; end the jobs that have no item left."""
        settled = Counter(item.job for item in items)
        holds = [item.hold for item in items if item.hold is not None]
        with self._lock:
            for job, count in settled.items():
                job.pending -= count
            for hold in holds:
                hold.items -= 1
            ended = [job for job in settled if job.pending == 0]
        ahead = Counter(item.job for item in items if not item.is_spawned)
        if holds:
            ahead.update({item.job: 0 for item in items})
        self._preparer.settled(ahead)
        self._end(ended)

    def _end(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            ended = [job for job in jobs if job in self._active]
            heard = [job for job in jobs if job in self._planned]
            for job in ended:
                self._active.discard(job)
            self._planned.difference_update(heard)
        for job in ended:
            self._listener.finished(job)
        for job in heard:
            _tell(job)

    def _drop(self, job: Job) -> None:
        self._forget(job)
        if job.is_part:
            _tell(job, Cancelled("it was cancelled"))
        else:
            self._listener.dropped(job)

    def _forget(self, job: Job) -> None:
        self._active.discard(job)
        self._planned.discard(job)
        self._preparer.forget(job)
        self._waiting.discard(job)

    def _guard(self, body: Callable[[], None]) -> None:
        """Run a thread's body; a thread that dies takes the worker with it instead of leaving callers waiting."""
        try:
            body()
        except BaseException as exc:
            log.critical("engine.thread_died", thread=threading.current_thread().name, error=type(exc).__name__)
            self._listener.broken(f"thread {threading.current_thread().name} died")
            raise


def _tell(job: Job, failure: Exception | None = None) -> None:
    """Let whoever waits for a part of a message go on."""
    if job.waiter is None:
        return
    if failure is None:
        job.waiter.set_result(None)
    else:
        job.waiter.set_exception(failure)


def _children(item: Item) -> Sequence[Item]:
    """Return what an item's outcome gives rise to; if that fails, it is the item that has failed."""
    if isinstance(item.outcome, ItemFailed):
        return ()
    try:
        spawned = item.job.pipeline.spawn(item)
    except BaseException as exc:  # noqa: BLE001 - makes the outcome; no post-processing may end a runner
        item.outcome = failure(exc)
        return ()
    for child in spawned:
        child.is_spawned = True
    return spawned
