"""A message that runs outside the batcher, on a thread of its own, and its share of the engine.

A bulk shard is such a message: its thread reads rows, hands them to the engine window by window, and waits. What the
engine runs for it is told apart from the batched messages, carries the same marks against poison, and ends with the
worker. This module knows neither shards nor rows.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from schemas.names import Band
from worker.jobs import NOBODY, Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.engine import Engine
    from worker.jobs import Charge, Pipeline
    from worker.planner import Batch


class Slot:
    """Runs parts of one message on the engine. For the thread that the message runs on.

    Args:
        engine: started.
        task_id: the message's.
        context: what the engine's listener knows the message by.
        charge: whose work it is.
        suspect: a worker died while it had the message in inference: it runs with nothing else.

    Attributes:
        runner_s: what its parts have cost the runners, of those that were waited for.
    """

    def __init__(
        self, engine: Engine, task_id: str, context: object, charge: Charge = NOBODY, *, suspect: bool
    ) -> None:
        self.engine = engine
        self.charge = charge
        self._task_id = task_id
        self._context = context
        self._suspect = suspect
        self._began_s = monotonic()
        self._waited_s = 0.0
        self._left_s: float | None = None
        self.runner_s = 0.0

    def work_s(self) -> float:
        """Return for how long the message's thread has worked, its waits for the engine aside."""
        return (self._left_s or monotonic()) - self._began_s - self._waited_s

    def leave(self) -> None:
        """Take note that the thread is done: what is recorded later is no work of it."""
        self._left_s = monotonic()

    def job(self, pipeline: Pipeline) -> Job:
        """Return a job for a part of the message, to fill with items that `pipeline` understands."""
        return Job(
            self._task_id,
            pipeline,
            self._began_s,  # of two slots, the one that began first gets its batches first, and ends first
            band=Band.BULK,
            charge=self.charge,
            is_on_credit=False,
            context=self._context,
            suspect=self._suspect,
            waiter=Future(),
        )

    @contextmanager
    def working(self, job: Job) -> Iterator[None]:
        """Mark what this thread does inside the block: should the worker die of it, the message is blamed."""
        with self.engine.preparing([job]):
            yield

    def submit(self, lane: str, job: Job, batches: Sequence[Batch]) -> None:
        """Let batches of the job's items run as they are; see `Engine.run_planned`. Does not block.

        Raises:
            Draining: the worker is stopping.
        """
        job.pending = sum(len(batch.items) for batch in batches)
        if job.pending:
            self.engine.run_planned(lane, job, batches)
        elif job.waiter is not None:
            job.waiter.set_result(None)

    def abandon(self, job: Job) -> None:
        """Let nothing more of a submitted job run: nobody will wait for it. Does not block; no harm if it has ended."""
        self.engine.abandon(job)

    def wait(self, job: Job) -> None:
        """Block until every item of a job that was submitted has its outcome.

        Raises:
            Draining: the worker is stopping.
            Cancelled: the message was called off.
        """
        began_s = monotonic()
        if job.waiter is not None:
            job.waiter.result()
        self._waited_s += monotonic() - began_s
        self.runner_s += job.runner_s


@contextmanager
def occupying(slot: Slot) -> Iterator[None]:
    """Let `occupied` return this slot to whatever this thread runs inside the block."""
    _this_thread.slot = slot
    try:
        yield
    finally:
        _this_thread.slot = None
        slot.leave()


def occupied() -> Slot | None:
    """Return the slot of the message that runs on this thread; None outside a worker."""
    return getattr(_this_thread, "slot", None)


_this_thread = threading.local()
