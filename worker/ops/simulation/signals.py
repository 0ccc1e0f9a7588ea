"""The numbers that autoscalers look at: what each can know of a queue, and nothing more.

`Gauges` holds what the broker tells; a signal is a formula over it. Ours is the exporter's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from worker.loads import NO_LOAD
from worker.ops.scaling import DEFAULT_TARGETS, SAME_SIZES, Demand, Targets, backlog_s
from worker.ops.simulation.traces import BANDS

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Gauges:
    """What the broker tells; see `Demand`.

    Attributes:
        waiting: messages by band.
        load: workers that were busy lately, by band.
        in_flight: messages that workers hold, or held until they died.
        workers: that are alive.
        rate: messages a second of one busy worker.
        sizes: work of a message of each band, in those of all.
    """

    waiting: list[int] = field(default_factory=lambda: [0] * BANDS)
    load: Sequence[float] = NO_LOAD
    in_flight: int = 0
    workers: int = 0
    rate: float | None = None
    sizes: Sequence[float] = SAME_SIZES


class Signal(Protocol):
    """A number to scale by."""

    asks_workers: ClassVar[bool]  # for more than what the queue and the leases show

    def value(self, seen: Gauges, target: float) -> float:
        """Return the metric, whose target for each worker is `target`."""


@dataclass(frozen=True, slots=True)
class ListLength:
    """Messages that wait in the queue's list, and with `in_flight` those that workers hold."""

    asks_workers: ClassVar[bool] = False

    in_flight: bool = False

    def value(self, seen: Gauges, target: float) -> float:
        """Return the metric."""
        del target
        return float(sum(seen.waiting) + (seen.in_flight if self.in_flight else 0))


@dataclass(frozen=True, slots=True)
class BacklogSeconds:
    """The exporter's `backlog_s`.

    Attributes:
        bulk_target_s: backlog seconds of bulk work for each worker.
        by_load: as the exporter does it. Else messages in flight count like those that wait: for comparison.
    """

    asks_workers: ClassVar[bool] = True

    bulk_target_s: float = DEFAULT_TARGETS.bulk_target_s
    by_load: bool = True

    def value(self, seen: Gauges, target: float) -> float:
        """Return the metric; 0 while nobody knows a rate."""
        if not self.by_load:
            return (sum(seen.waiting) + seen.in_flight) / seen.rate if seen.rate else 0.0
        demand = Demand(seen.waiting, seen.load, seen.in_flight, seen.workers, seen.rate, seen.sizes)
        return backlog_s(demand, Targets(target, self.bulk_target_s)) or 0.0
