"""How many messages a second of each queue this worker would end if it did nothing else: what autoscaling divides by.

A message occupies runners, the finisher, and maybe a slot, each for some seconds; of each the worker has so many. What
it has least of decides: the rate of a queue is its messages ÷ the seconds of whichever its messages occupied most. So
the rate is right on an idle worker and on one that serves several queues, and does not depend on how much there is to
do, but for what larger batches save.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HALF_LIFE_S: Final = 300.0  # of busy seconds: by then what was measured before counts half
ENOUGH_S: Final = 1.0  # busy seconds below which a rate is noise


@dataclass(slots=True)
class _Demand:
    """What the messages of one queue took, older ones counting less.

    Attributes:
        messages: that ended.
        seconds: occupied of each resource, divided by how many of it there are.
    """

    messages: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def note(self, messages: int, seconds: Mapping[str, float]) -> None:
        fading = 0.5 ** (max(seconds.values(), default=0.0) / HALF_LIFE_S)
        self.messages = self.messages * fading + messages
        for resource in {**self.seconds, **seconds}:
            self.seconds[resource] = self.seconds.get(resource, 0.0) * fading + seconds.get(resource, 0.0)


class ServiceRates:
    """The rates of the queues of one worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._demands: dict[str, _Demand] = {}
        self._changed: set[str] = set()

    def note(self, queue: str, messages: int, seconds: Mapping[str, float]) -> None:
        """Note that messages ended.

        Args:
            queue: theirs.
            messages: how many.
            seconds: by resource, what they occupied of it, divided by how many of it the worker has.
        """
        with self._lock:
            self._demands.setdefault(queue, _Demand()).note(messages, seconds)
            self._changed.add(queue)

    def news(self) -> dict[str, float]:
        """Return the rates of the queues that had a message end since this was last asked, in messages a second."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return {queue: rate for queue in changed if (rate := self._rate(queue)) is not None}

    def _rate(self, queue: str) -> float | None:
        demand = self._demands[queue]
        busy_s = max(demand.seconds.values(), default=0.0)
        return demand.messages / busy_s if busy_s >= ENOUGH_S and demand.messages else None
