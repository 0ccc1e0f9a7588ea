"""How much of each queue this worker would get done if it did nothing else, and how large its messages are.

Work is counted in units, a ticket or a page, as it gets done, so that a document of 200 pages shows before it ends.
Units occupy runners, the finisher, and maybe a slot, each for some seconds; of each the worker has so many. What it has
least of decides: its pace is its units ÷ the seconds of whichever they occupied most. So the pace is right on an idle
worker and on one that serves several queues, and does not depend on how much there is to do, but for what larger
batches save.

Autoscaling divides by messages a second. How many units a message has is a matter of the queue: of its last 50 messages
each of 25 workers has opened two. So the workers tell what they open as it comes, and the script that renews their
leases makes one mean of it, and of that and the pace the queue's rate. They tell it by band: an exported message of a
thousand tickets says nothing of the mails that wait beside it.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.names import Band

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.jobs import Charge

HALF_LIFE_S: Final = 300.0  # of busy seconds: by then what was measured before counts half
ENOUGH_S: Final = 1.0  # busy seconds below which a rate is noise
LEAST_UNITS: Final = 1e-6  # of a mean message, once one had some: what thousands that were refused leave of it


class Opened(NamedTuple):
    """Messages that were opened, and the units that they consist of."""

    messages: float = 0.0
    units: int = 0


class News(NamedTuple):
    """What a worker tells of a queue.

    Attributes:
        units_per_s: that it gets done if it does nothing else; None = nothing got done, or too little to say.
        opened: since it told last, by band.
    """

    units_per_s: float | None = None
    opened: tuple[Opened, ...] = (Opened(),) * len(Band)


NO_NEWS: Final = News()


@dataclass(slots=True)
class _Demand:
    """What the messages of one queue are and took.

    Attributes:
        messages: by band, that were opened and not told yet.
        units: of those, by band.
        done_units: that got done, older ones counting less.
        seconds: occupied of each resource by what got done, divided by how many of it there are; older ones count less.
        has_done: something since it was told last.
    """

    messages: list[float] = field(default_factory=lambda: [0.0] * len(Band))
    units: list[int] = field(default_factory=lambda: [0] * len(Band))
    done_units: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    has_done: bool = False

    def open(self, band: int, messages: float, units: int) -> None:
        self.messages[band] += messages
        self.units[band] += units

    def do(self, units: int, seconds: Mapping[str, float]) -> None:
        kept = 0.5 ** (max(seconds.values(), default=0.0) / HALF_LIFE_S)
        self.done_units = self.done_units * kept + units
        for resource in {**self.seconds, **seconds}:
            self.seconds[resource] = self.seconds.get(resource, 0.0) * kept + seconds.get(resource, 0.0)
        self.has_done = True

    def tell(self) -> News:
        opened = tuple(map(Opened, self.messages, self.units))
        news = News(self._units_per_s() if self.has_done else None, opened)
        self.messages, self.units, self.has_done = [0.0] * len(Band), [0] * len(Band), False
        return news

    def _units_per_s(self) -> float | None:
        busy_s = max(self.seconds.values(), default=0.0)
        return None if busy_s < ENOUGH_S or not self.done_units else self.done_units / busy_s


class ServiceRates:
    """What one worker measures of its queues. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._demands: defaultdict[str, _Demand] = defaultdict(_Demand)

    def opened(self, charge: Charge, messages: float, units: int) -> None:
        """Note what messages turned out to be.

        Args:
            charge: theirs.
            messages: how many; less than one is a part of one.
            units: that they consist of.
        """
        with self._lock:
            self._demands[charge.queue].open(charge.band, messages, units)

    def done(self, queue: str, units: int, seconds: Mapping[str, float]) -> None:
        """Note that units got done.

        Args:
            queue: of their messages.
            units: how many.
            seconds: by resource, what they occupied of it, divided by how many of it the worker has.
        """
        with self._lock:
            self._demands[queue].do(units, seconds)

    def news(self) -> dict[str, News]:
        """Return what is new since this was last asked, by queue.

        What was opened is told once: if it does not arrive, the mean is of a few messages less.
        """
        with self._lock:
            told = {queue: demand.tell() for queue, demand in self._demands.items()}
        return {queue: news for queue, news in told.items() if news != NO_NEWS}


def relative_sizes(queue: str, opened: Mapping[bytes, bytes]) -> tuple[float, ...]:
    """Return the size of a message of each band in those of all; 1 where nobody knows.

    Args:
        queue: theirs.
        opened: what `worker.keys.MESSAGE_SIZES` holds.
    """
    mean = _mean(opened.get(queue.encode()))
    of_bands = [_mean(opened.get(f"{band:d} {queue}".encode())) for band in Band]
    return tuple(of_band / mean if mean and of_band else 1.0 for of_band in of_bands)


def _mean(text: bytes | None) -> float | None:
    """Return the units of a message; None if there is none, or somebody else wrote that."""
    with suppress(ValueError, ZeroDivisionError):
        units, messages = map(float, (text or b"").split())
        if LEAST_UNITS / 2 < (mean := units / messages) < math.inf:  # half, as both were rounded
            return mean
    return None
