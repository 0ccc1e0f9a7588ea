"""What the exporter saw of the queues in one look, and what each metric says of it.

It knows neither when somebody looks nor who asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.names import PRIORITY_STEPS, Band
from worker import metrics
from worker.ops.scaling import Demand, by_band

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.ops.queues import QueueState
    from worker.tallies import Labels

BANDS: Final = dict(zip(PRIORITY_STEPS, ("interactive", "normal", "bulk", "background"), strict=True))
_BAND_NAMES: Final = tuple(BANDS.values())[: len(Band)]  # the last list is of the last band


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queue at one moment.

    Attributes:
        state: its lists and leases.
        workers: live ones that serve it.
        rate: messages a second that one busy worker gets done; None = nobody knows.
        source: of the rate.
        sizes: work of a message of each band, in those of all.
    """

    state: QueueState
    workers: int
    rate: float | None
    source: str
    sizes: Sequence[float]

    @property
    def waiting(self) -> int:
        """Messages that wait, in all priorities and in inboxes."""
        return sum(self.state.waiting)

    @property
    def demand(self) -> Demand:
        """What an autoscaler's number is made of."""
        state = self.state
        return Demand(by_band(state.waiting), state.load, state.in_flight, self.workers, self.rate, self.sizes)

    @property
    def oldest_age_s(self) -> float | None:
        """How long the oldest message has waited; 0 = nothing waits, None = no producer says."""
        return self.state.oldest_age_s if self.waiting else 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in one look.

    Attributes:
        queues: by name.
        bulk_done_s: by task, Unix time of the last bulk run's end; 0 = none is known.
        at_s: when, monotonic.
    """

    queues: Mapping[str, QueueLook]
    bulk_done_s: Mapping[str, float]
    at_s: float


def _each(value: Callable[[QueueLook], float | None]) -> Callable[[Look | None], dict[Labels, float]]:
    """Return what gives a value for each queue that has one."""

    def read(look: Look | None) -> dict[Labels, float]:
        found = {} if look is None else {(name,): value(queue) for name, queue in look.queues.items()}
        return {labels: number for labels, number in found.items() if number is not None}

    return read


def _waiting(look: Look | None) -> dict[Labels, float]:
    queues = {} if look is None else look.queues
    return {
        (name, band): count
        for name, queue in queues.items()
        for band, count in zip(BANDS.values(), queue.state.waiting, strict=True)
    }


def _backlogs(look: Look | None) -> dict[Labels, float]:
    queues = {} if look is None else look.queues
    return {
        (name, _BAND_NAMES[band]): seconds
        for name, queue in queues.items()
        for band, seconds in enumerate(queue.demand.waiting_s() or ())
    }


def _busy(look: Look | None) -> dict[Labels, float]:
    queues = {} if look is None else look.queues
    return {
        (name, _BAND_NAMES[band]): load for name, queue in queues.items() for band, load in enumerate(queue.state.load)
    }


def _rates(look: Look | None) -> dict[Labels, float]:
    queues = {} if look is None else look.queues
    return {(name, queue.source): queue.rate for name, queue in queues.items() if queue.rate is not None}


def _bulk_done(look: Look | None) -> dict[Labels, float]:
    return {} if look is None else {(task,): end_s for task, end_s in look.bulk_done_s.items()}


VALUES: Final[Mapping[metrics.Metric, Callable[[Look | None], dict[Labels, float]]]] = {
    metrics.QUEUE_WAITING: _waiting,
    metrics.QUEUE_IN_FLIGHT: _each(lambda queue: queue.state.in_flight),
    metrics.QUEUE_OVERDUE: _each(lambda queue: queue.state.overdue),
    metrics.QUEUE_OLDEST_AGE: _each(lambda queue: queue.oldest_age_s),
    metrics.QUEUE_BACKLOG: _backlogs,
    metrics.QUEUE_BUSY: _busy,
    metrics.QUEUE_RATE: _rates,
    metrics.QUEUE_WORKERS: _each(lambda queue: queue.workers),
    metrics.QUEUE_DEAD: _each(lambda queue: queue.state.dead),
    metrics.QUEUE_UNREADABLE: _each(lambda queue: queue.state.unreadable),
    metrics.BROKER_UP: lambda look: {(): float(look is not None)},
    metrics.BULK_DONE: _bulk_done,
}
"""What each metric says of a look; None = there was none."""
