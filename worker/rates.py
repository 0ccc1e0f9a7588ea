"""How many messages a second of each queue this worker would end if it did nothing else: what autoscaling divides by.

Work is counted in units, a ticket or a page, as it gets done, so that a document of 200 pages shows before it ends; a
message counts as the mean of those opened lately. Units occupy runners, the finisher, and maybe a slot, each for some
seconds; of each the worker has so many. What it has least of decides: the rate of a queue is its units ÷ the seconds of
whichever they occupied most ÷ the units of a message. So the rate is right on an idle worker and on one that serves
several queues, and does not depend on how much there is to do, but for what larger batches save.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HALF_LIFE_S: Final = 300.0  # of busy seconds: by then what was measured before counts half
ENOUGH_S: Final = 1.0  # busy seconds below which a rate is noise
MESSAGES: Final = 50.0  # that the mean size of a message is taken over
_KEPT: Final = 1.0 - 1.0 / MESSAGES


@dataclass(slots=True)
class _Demand:
    """What the messages of one queue are and took, older ones counting less.

    Attributes:
        messages: that were opened.
        size_units: of those, in all.
        done_units: that got done.
        seconds: occupied of each resource by what got done, divided by how many of it there are.
    """

    messages: float = 0.0
    size_units: float = 0.0
    done_units: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def open(self, messages: float, units: int) -> None:
        kept = _KEPT**messages
        self.messages = self.messages * kept + messages
        self.size_units = self.size_units * kept + units

    def do(self, units: int, seconds: Mapping[str, float]) -> None:
        kept = 0.5 ** (max(seconds.values(), default=0.0) / HALF_LIFE_S)
        self.done_units = self.done_units * kept + units
        for resource in {**self.seconds, **seconds}:
            self.seconds[resource] = self.seconds.get(resource, 0.0) * kept + seconds.get(resource, 0.0)

    def rate(self) -> float | None:
        busy_s = max(self.seconds.values(), default=0.0)
        if busy_s < ENOUGH_S or not self.done_units or not self.size_units:
            return None
        return self.done_units / busy_s / (self.size_units / self.messages)


class ServiceRates:
    """The rates of the queues of one worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._demands: defaultdict[str, _Demand] = defaultdict(_Demand)
        self._changed: set[str] = set()

    def opened(self, queue: str, messages: float, units: int) -> None:
        """Note what messages turned out to be.

        Args:
            queue: theirs.
            messages: how many; less than one is a part of one.
            units: that they consist of.
        """
        with self._lock:
            self._demands[queue].open(messages, units)

    def done(self, queue: str, units: int, seconds: Mapping[str, float]) -> None:
        """Note that units got done.

        Args:
            queue: of their messages.
            units: how many.
            seconds: by resource, what they occupied of it, divided by how many of it the worker has.
        """
        with self._lock:
            self._demands[queue].do(units, seconds)
            self._changed.add(queue)

    def news(self) -> dict[str, float]:
        """Return the rates of the queues that got something done since this was last asked, in messages a second."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return {queue: rate for queue in changed if (rate := self._demands[queue].rate()) is not None}
