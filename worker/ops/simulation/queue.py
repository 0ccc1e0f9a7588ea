"""The queue of a simulation: priority lists, or one list."""

from __future__ import annotations

from collections import deque

from worker.ops.simulation.traces import BANDS


class Queue:
    """Messages that wait, by number.

    Args:
        has_bands: the most urgent band is served first; else all bands share a list.
    """

    def __init__(self, *, has_bands: bool) -> None:
        self._lists: list[deque[int]] = [deque() for _ in range(BANDS)]
        self._has_bands = has_bands
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def put(self, message: int, band: int) -> None:
        """Put a message behind the others of its list."""
        self._lists[band if self._has_bands else 0].append(message)
        self._waiting += 1

    def put_back(self, message: int, band: int) -> None:
        """Put a message before the others of its list."""
        self._lists[band if self._has_bands else 0].appendleft(message)
        self._waiting += 1

    def pop(self) -> int:
        """Take the next message; there must be one."""
        self._waiting -= 1
        return next(waiting for waiting in self._lists if waiting).popleft()
