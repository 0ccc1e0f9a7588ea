"""Ends calls of a model that run too long; reports the ones that do not end."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from worker.errors import BatchTimeout, Draining
from worker.jobs import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Watchdog:
    """Watches the calls that run now, from one thread of its own.

    Args:
        limit_s: a call that runs longer is cancelled.
        grace_s: a cancelled call that runs this much longer is stuck.
        on_stuck: called once, from the watchdog's thread, when a call is stuck.
    """

    def __init__(self, limit_s: float, grace_s: float, on_stuck: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._on_stuck = on_stuck
        self._calls: dict[Cancellation, float] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Cancel every running call, let no other begin, and stop watching; does not wait."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            calls = list(self._calls)
        for cancellation in calls:
            cancellation.cancel()

    @property
    def thread(self) -> threading.Thread:
        """The thread that watches."""
        return self._thread

    def longest_s(self) -> float:
        """Return how long the oldest call runs, less what it may wait; 0 = none does. Does not block."""
        now_s = monotonic()
        return max(0.0, now_s - min(list(self._calls.values()), default=now_s))

    @contextmanager
    def watch(self, waits_s: float = 0.0) -> Iterator[Cancellation]:
        """Watch the call made inside the block.

        Args:
            waits_s: how long it may wait for others before its own time counts.

        Raises:
            BatchTimeout: in place of whatever the cancelled call raised.
            Draining: the same, or before the call, once the watchdog is stopped.
        """
        cancellation = Cancellation()
        with self._changed:
            if self._closed:
                raise Draining("the worker is stopping")
            self._calls[cancellation] = monotonic() + waits_s
        try:
            yield cancellation
        except BaseException as exc:
            if not cancellation.cancelled:
                raise
            if self._closed:
                raise Draining("the worker is stopping") from exc
            raise BatchTimeout(self._limit_s) from exc
        finally:
            with self._changed:
                del self._calls[cancellation]

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(min(1.0, self._limit_s / 4))
                now_s = monotonic()
                late = [call for call, started_s in self._calls.items() if now_s - started_s > self._limit_s]
                longest_s = max((now_s - started_s for started_s in self._calls.values()), default=0.0)
            for call in late:
                call.cancel()
            if longest_s > self._limit_s + self._grace_s:
                self._on_stuck()
                return
