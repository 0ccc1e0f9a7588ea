"""How busy this worker was lately, by queue and band: what autoscaling takes for the work in flight.

Runners, the finisher and slots are busy for some seconds each; of each the worker has so many. As in `worker.rates`,
what it has least of decides: the load of a queue is the busy share of whichever its messages occupied most. What still
runs counts already, so a batch of a minute shows before it ends. A load fades slowly, so that an autoscaler sees the
busy minutes and not the moment between two messages.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

from schemas.names import Band

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from worker.jobs import Charge

Load: TypeAlias = tuple[float, float, float]  # busy workers, by band

NO_LOAD: Final[Load] = (0.0, 0.0, 0.0)
SMOOTHING_S: Final = 120.0  # time constant; the simulation found 120 s better than 60 s


class _Span:
    """Something that runs: what it occupies, for whom, and since when that has not been counted."""

    __slots__ = ("resource", "shares", "since_s")

    def __init__(self, resource: str, shares: Mapping[Charge, float], since_s: float) -> None:
        self.resource = resource
        self.shares = shares
        self.since_s = since_s


class Loads:
    """The loads of the queues of one worker. Thread-safe.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: set[_Span] = set()
        self._worked_s: defaultdict[tuple[str, Charge], float] = defaultdict(float)
        self._loads: dict[tuple[str, Charge], float] = {}
        self._looked_s = clock()

    @contextmanager
    def busy(self, resource: str, shares: Mapping[Charge, float]) -> Iterator[None]:
        """Note that part of a resource is occupied inside the block.

        Args:
            resource: what is occupied.
            shares: of all that the worker has of it, by whom it is occupied for.
        """
        span = _Span(resource, shares, self._clock())
        with self._lock:
            self._spans.add(span)
        try:
            yield
        finally:
            with self._lock:
                self._spans.discard(span)
                self._count(span, self._clock())

    def note(self, resource: str, charge: Charge, seconds: float) -> None:
        """Note that all that the worker has of a resource was occupied for so long."""
        with self._lock:
            self._worked_s[resource, charge] += seconds

    def now(self) -> dict[str, Load]:
        """Return, by queue, the share of its time that this worker was busy lately, by band; 1 at most."""
        with self._lock:
            self._smooth(self._clock())
            loads: dict[str, list[float]] = {}
            for (_, charge), load in self._loads.items():
                of_queue = loads.setdefault(charge.queue, [0.0] * len(Band))
                of_queue[charge.band] = max(of_queue[charge.band], min(load, 1.0))
            return {queue: (one[0], one[1], one[2]) for queue, one in loads.items()}

    def _smooth(self, now_s: float) -> None:
        elapsed_s, self._looked_s = now_s - self._looked_s, now_s
        if elapsed_s <= 0:
            return
        for span in self._spans:
            self._count(span, now_s)
        moved = 1.0 - math.exp(-elapsed_s / SMOOTHING_S)
        for key in self._loads.keys() | self._worked_s.keys():
            load = self._loads.get(key, 0.0)
            self._loads[key] = load + (self._worked_s[key] / elapsed_s - load) * moved
        self._worked_s.clear()

    def _count(self, span: _Span, now_s: float) -> None:
        for charge, share in span.shares.items():
            self._worked_s[span.resource, charge] += share * (now_s - span.since_s)
        span.since_s = now_s


def to_text(loads: Mapping[str, Load]) -> str:
    """Return what a worker writes down: a line for each queue, `INTERACTIVE NORMAL BULK QUEUE`.

    Less than half a hundredth of a worker counts as nothing, so that a load that fades comes to an end.
    """
    return "\n".join(" ".join([*(f"{share:.2f}" for share in load), queue]) for queue, load in loads.items())


def from_text(text: str) -> dict[str, Load]:
    """Return the loads by queue that a worker has written down.

    Raises:
        ValueError: no worker of ours wrote that.
    """
    loads: dict[str, Load] = {}
    for line in text.split("\n") if text else ():
        interactive, normal, bulk, queue = line.split(" ", len(Band))
        loads[queue] = (float(interactive), float(normal), float(bulk))
        if not all(0 <= share <= 1 for share in loads[queue]):
            raise ValueError("a worker's load is between 0 and 1")
    return loads
