"""The number that an autoscaler divides by a target to know how many workers a queue wants. Pure.

It is seconds of one busy worker: those that what waits will take, and the target itself for each worker that was busy
lately. So nothing waiting and four busy workers want four workers, whatever the messages in flight are: counting those
would take a message of 1,000 tickets, or a bulk one, for the mean. Work that may take long counts for as much less as
its own target is longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.names import PRIORITY_STEPS, Band, band_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Targets:
    """What an autoscaler aims at: seconds of backlog for each worker, and the same for bulk work."""

    target_s: float = 25.0
    bulk_target_s: float = 1800.0


DEFAULT_TARGETS: Final = Targets()
SAME_SIZES: Final = (1.0,) * len(Band)


@dataclass(frozen=True, slots=True)
class Demand:
    """What is known of a queue.

    Attributes:
        waiting: messages by band.
        load: workers that were busy lately, by band.
        in_flight: messages that workers hold.
        workers: that are alive.
        rate: messages a second that one busy worker ends; None = nobody knows.
        sizes: work of a message of each band, in those of all.
    """

    waiting: Sequence[float]
    load: Sequence[float]
    in_flight: int
    workers: int
    rate: float | None
    sizes: Sequence[float] = SAME_SIZES

    def waiting_s(self) -> tuple[float, ...] | None:
        """Return the seconds that one busy worker needs for what waits, by band; None without a rate."""
        if self.rate is None:
            return None
        return tuple(messages * size / self.rate for messages, size in zip(self.waiting, self.sizes, strict=True))


def by_band(waiting: Sequence[int]) -> tuple[int, ...]:
    """Return how many messages wait in each band, from how many wait in each of the queue's lists."""
    bands = [0] * len(Band)
    for step, messages in zip(PRIORITY_STEPS, waiting, strict=True):
        bands[band_of(step)] += messages
    return tuple(bands)


def backlog_s(demand: Demand, targets: Targets = DEFAULT_TARGETS) -> float | None:
    """Return the seconds of one worker that a queue wants; None without a rate. Above 0 while there is any message.

    Workers wanted = this ÷ `targets.target_s`.
    """
    waiting_s = demand.waiting_s()
    if demand.rate is None or waiting_s is None:
        return None
    weights = (1.0, 1.0, min(1.0, targets.target_s / targets.bulk_target_s))
    wanted_s = sum(
        weight * (waiting + targets.target_s * load)
        for weight, waiting, load in zip(weights, waiting_s, demand.load, strict=True)
    )
    return wanted_s if any(demand.load) else wanted_s + _fetched_s(demand, demand.rate, targets)


def _fetched_s(demand: Demand, rate: float, targets: Targets) -> float:
    """Return what messages count for that are held but by no load yet, having just been fetched.

    Like those that wait, but they cannot go to another worker: they never want more than there are.
    """
    most_s = targets.target_s * demand.workers if demand.workers else math.inf
    return min(demand.in_flight / rate, most_s)
