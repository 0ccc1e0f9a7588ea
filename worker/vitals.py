"""Signs of life: the parts of a worker stamp when they last did what they are there for, the probes read it.

A stamp is one assignment, so it costs nothing and blocks nobody. What the stamps mean is for `worker.ops.health`.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from worker.ops.health import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from threading import Thread

TURN_EVERY_S: Final = 2.0  # how often the event loop gives its sign


class Vitals:
    """What a worker's parts last said. Thread-safe.

    Args:
        queues: that the worker must consume; one that it stops consuming, for whatever reason, is a fault.
        broker_s: a silence of the broker longer than this counts as an outage.
        clock: monotonic seconds.

    Attributes:
        starting: what the worker does before it can serve; empty = it has started.
        broken: why it is about to end; empty = it is not.
    """

    def __init__(self, queues: Sequence[str], broker_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._queues = tuple(queues)
        self._broker_s = broker_s
        self._clock = clock
        self.starting = "it has just begun"
        self.broken = ""
        self._is_draining: Callable[[], bool] = bool
        self._longest_call_s: Callable[[], float] = float
        self._threads: tuple[Thread, ...] = ()
        self._turned_s = self._heard_s = self._reachable_s = clock()
        self._connected_s: float | None = None
        self._fetched_s: dict[str, float] = {}

    def started(
        self, threads: Iterable[Thread], longest_call_s: Callable[[], float], is_draining: Callable[[], bool]
    ) -> None:
        """Take note that the engine is up.

        Args:
            threads: that must not end before the worker does.
            longest_call_s: how old the oldest running batch or portion is.
            is_draining: whether the worker was told to stop.
        """
        self._threads = tuple(threads)
        self._longest_call_s = longest_call_s
        self._is_draining = is_draining
        self._turned_s = self._clock()
        self.heard()
        self.starting = ""

    def turned(self) -> None:
        """The event loop turns, or tries to connect."""
        self._turned_s = self._clock()

    def connected(self) -> None:
        """The event loop has a connection to the broker and begins to consume."""
        self._connected_s = self._clock()
        self.turned()

    def disconnected(self) -> None:
        """It has lost the connection."""
        self._connected_s = None
        self.turned()

    def heard(self) -> None:
        """The broker has answered."""
        now_s = self._clock()
        if now_s - self._heard_s > self._broker_s:
            self._reachable_s = now_s
        self._heard_s = now_s

    def fetched(self, queues: Iterable[str]) -> None:
        """The fetcher of these queues has completed a cycle: fetched, waited, or found no room."""
        now_s = self._clock()
        for queue in queues:
            self._fetched_s[queue] = now_s

    def facts(self) -> Facts:
        """Return what is known now. Does not block."""
        now_s, connected_s = self._clock(), self._connected_s
        since_s = max(self._reachable_s, connected_s or 0.0)
        return Facts(
            starting=self.starting,
            broken=self.broken,
            draining=self._is_draining(),
            dead_threads=tuple(thread.name for thread in self._threads if not thread.is_alive()),
            loop_silent_s=now_s - self._turned_s,
            is_connected=connected_s is not None,
            unheard_s=now_s - self._heard_s,
            unfetched_s={queue: now_s - max(since_s, self._fetched_s.get(queue, 0.0)) for queue in self._queues},
            unserved=tuple(queue for queue in self._queues if self._fetched_s.get(queue, 0.0) <= (connected_s or 0.0)),
            longest_call_s=self._longest_call_s(),
        )
