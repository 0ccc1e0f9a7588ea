"""What the parts of a worker tell about their work, for autoscaling: who was busy for whom, and what got done.

Whoever tells does so once a message, a batch or a commit, never once an item.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from worker.loads import Loads
from worker.rates import ServiceRates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.jobs import Charge, Item, Job
    from worker.lanes import Lane
    from worker.planner import Batch
    from worker.slots import Slot

RUNNERS: Final = "runners"
FINISHER: Final = "finisher"
SLOTS: Final = "slots"


class Meter:
    """The measuring of one worker. Thread-safe.

    Attributes:
        rates: what it would get done if it did nothing else.
        loads: how busy it was lately.
    """

    def __init__(self) -> None:
        self.rates = ServiceRates()
        self.loads = Loads()

    def opened(self, job: Job, units: int, *, part: float = 1.0) -> None:
        """Note of how many units a message, or such a part of it, turned out to consist."""
        self.rates.opened(job.charge, part, units)

    @contextmanager
    def running(self, lane: Lane, batch: Batch, runners: int) -> Iterator[None]:
        """Note that a batch runs inside the block, on one of so many runners or a thread of the lane's own."""
        rows = {} if lane.threads else _by_charge([row[0] for row in batch.rows])
        shares = {charge: count / len(batch.rows) / runners for charge, count in rows.items()}
        began_s = monotonic()
        with self.loads.busy(RUNNERS, shares):
            yield
        elapsed_s = monotonic() - began_s
        # A part of a message counts as a whole, at its end; one of bulk work may share a batch with messages.
        own = [item for item in batch.items if not item.job.is_part]
        for charge, count in _by_charge(own).items():
            took = {RUNNERS: shares.get(charge, 0.0) * elapsed_s}
            self.rates.done(charge.queue, count if lane.is_unit else 0, took)

    def settled(self, items: Sequence[Item]) -> None:
        """Note that items have their outcome without a batch."""
        for charge, units in _by_charge(items).items():
            self.rates.done(charge.queue, units, {})

    def committed(self, charge: Charge, seconds: float) -> None:
        """Note for how long the finisher was busy."""
        self.rates.done(charge.queue, 0, {FINISHER: seconds})
        self.loads.note(FINISHER, charge, seconds)

    @contextmanager
    def occupied(self, slot: Slot, slots: int) -> Iterator[None]:
        """Note that a slot, one of so many, is occupied inside the block."""
        with self.loads.busy(SLOTS, {slot.charge: 1 / slots}):
            yield

    def vacated(self, slot: Slot, slots: int, *, messages: int) -> None:
        """Note what a message took that was in a slot; it is a unit of its own, if it has ended."""
        self.rates.opened(slot.charge, messages, messages)
        took = {RUNNERS: slot.runner_s / slot.engine.runners, SLOTS: slot.work_s() / slots}
        self.rates.done(slot.charge.queue, messages, took)


def _by_charge(items: Sequence[Item]) -> Counter[Charge]:
    return Counter([item.job.charge for item in items])
