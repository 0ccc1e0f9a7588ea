"""Hands calls from any thread to Celery's event loop, in order."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = structlog.get_logger(__name__)


class Callbacks:
    """A queue in front of the loop, whose own `call_soon` keeps no order. Thread-safe; nothing blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._scheduled = False
        self._hub: Any = None

    def attach(self, hub: Any) -> None:  # noqa: ANN401 - kombu's hub
        """Learn which loop to call on; a lost connection resets it, and forgets what it was to call."""
        with self._lock:
            self._hub = hub
            self._scheduled = bool(self._waiting)
        if self._scheduled:
            hub.call_soon(self.run)

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Let the loop call `callback(*args)`."""
        self.post_all([(callback, args)])

    def post_all(self, calls: Sequence[tuple[Callable[..., object], tuple[object, ...]]]) -> None:
        """Let the loop make these calls, waking it once for all."""
        if not calls:
            return
        with self._lock:
            self._waiting.extend(calls)
            schedule = self._hub is not None and not self._scheduled
            self._scheduled = self._scheduled or schedule
        if schedule:
            self._hub.call_soon(self.run)

    def run(self) -> None:
        """Make the calls that wait; on the loop's thread, or where the loop has ended."""
        while (call := self._next()) is not None:
            callback, args = call
            try:
                callback(*args)
            except Exception:  # one request's bookkeeping must not end the worker
                log.exception("callback.failed")

    def _next(self) -> tuple[Callable[..., object], tuple[object, ...]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._scheduled = False
            return None
