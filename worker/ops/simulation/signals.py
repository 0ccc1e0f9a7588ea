"""The numbers that autoscalers look at: what each can know of a queue, and nothing more.

`Gauges` holds what workers have published, smoothed as they would; a signal is a formula over it and over the queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.ops.simulation.traces import BANDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.ops.simulation.workers import Work

RATE_BUSY_S: Final = 300.0  # busy seconds over which workers smooth what they get done in a second
LOAD_S: Final = 120.0  # seconds over which the share of busy time is smoothed
SIZE_MESSAGES: Final = 50.0  # messages over which the units of a message are smoothed


@dataclass(slots=True)
class Gauges:
    """What the broker and the workers tell.

    Attributes:
        waiting: messages by band.
        waiting_units: of those, by band; known only where a message's size tells them.
        held: messages that workers hold.
        load: workers that were busy lately, by band.
        busy_s, units, ended: of all workers, decayed: their ratios are the measured rates.
        units_per_message: of what was opened lately.
    """

    waiting: list[int] = field(default_factory=lambda: [0] * BANDS)
    waiting_units: list[float] = field(default_factory=lambda: [0.0] * BANDS)
    held: int = 0
    load: list[float] = field(default_factory=lambda: [0.0] * BANDS)
    busy_s: float = 0.0
    units: float = 0.0
    ended: float = 0.0
    units_per_message: float = 1.0

    def wait(self, band: int, units: float) -> None:
        """Count a message that waits."""
        self.waiting[band] += 1
        self.waiting_units[band] += units

    def open(self, band: int, units: float) -> None:
        """Count a message that a worker has taken."""
        self.waiting[band] -= 1
        self.waiting_units[band] -= units
        self.units_per_message += (units - self.units_per_message) / SIZE_MESSAGES

    def learn(self, done: Iterable[Work], elapsed_s: float) -> None:
        """Take in what the workers got done in the last seconds, and make them forget it."""
        busy_s = [0.0] * BANDS
        for work in done:
            for band in range(BANDS):
                busy_s[band] += work.busy_s[band]
                work.busy_s[band] = 0.0
            self.units, work.units = self.units + work.units, 0.0
            self.ended, work.ended = self.ended + work.ended, 0
        total_s = sum(busy_s)
        self.busy_s += total_s
        kept = math.exp(-total_s / RATE_BUSY_S)
        self.busy_s, self.units, self.ended = self.busy_s * kept, self.units * kept, self.ended * kept
        moved = 1.0 - math.exp(-elapsed_s / LOAD_S)
        for band in range(BANDS):
            self.load[band] += (busy_s[band] / elapsed_s - self.load[band]) * moved


@dataclass(frozen=True, slots=True)
class ListLength:
    """Messages that wait in the queue's list, and with `in_flight` those that workers hold."""

    in_flight: bool = False

    def value(self, seen: Gauges, target: float) -> float:
        """Return the metric."""
        del target
        return float(sum(seen.waiting) + (seen.held if self.in_flight else 0))


@dataclass(frozen=True, slots=True)
class BacklogSeconds:
    """Seconds that one worker would take.

    Attributes:
        by_units: waiting work is counted in units; else in messages of the mean size that has ended lately.
        is_sized: see `Trace`; else a waiting message counts as the mean of those opened lately.
        by_load: what is in flight is the workers that were busy lately, each worth `target`; else the messages held.
        weights: by band, what a second of its work counts.
        headroom: share of workers beyond the load, for what comes before more are ready.
    """

    by_units: bool = True
    is_sized: bool = True
    by_load: bool = True
    weights: Sequence[float] = (1.0,) * BANDS
    headroom: float = 0.0

    def value(self, seen: Gauges, target: float) -> float:
        """Return the metric."""
        waiting_s = sum(
            weight * self._seconds(seen, band) for band, weight in enumerate(self.weights) if seen.waiting[band]
        )
        if self.by_load:
            load = sum(weight * load for weight, load in zip(self.weights, seen.load, strict=True))
            return waiting_s + target * (1.0 + self.headroom) * load
        return waiting_s + seen.held * seen.busy_s / max(seen.ended, 1e-9)

    def _seconds(self, seen: Gauges, band: int) -> float:
        if not self.by_units:
            return seen.waiting[band] * seen.busy_s / max(seen.ended, 1e-9)
        units = seen.waiting_units[band] if self.is_sized else seen.waiting[band] * seen.units_per_message
        return units * seen.busy_s / max(seen.units, 1e-9)
