"""A seekable file over anything that can return a range of bytes, with a little read-ahead.

Small reads that follow each other share one request; a large read is one request of its own and is not kept. It knows
neither S3 nor disks.
"""

from __future__ import annotations

import io
import os
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

READ_AHEAD_BYTES: Final = 1024 * 1024


def _nothing() -> None:
    """Let go of nothing."""


class RangeReader(io.BufferedIOBase):
    """Reads an object of a known length. Holds at most `read_ahead_bytes` beside what it returns.

    Every call is atomic; where a read starts is one position for all threads.

    Args:
        size_bytes: the object's length.
        fetch: returns the bytes from `start` up to `end`, all of them, or raises.
        release: called once, when it is closed.
        read_ahead_bytes: what a smaller read fetches at least.
    """

    def __init__(
        self,
        size_bytes: int,
        fetch: Callable[[int, int], bytes],
        release: Callable[[], None] = _nothing,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
    ) -> None:
        self._size = size_bytes
        self._fetch = fetch
        self._release = release
        self._read_ahead = read_ahead_bytes
        self._position = 0
        self._kept = b""
        self._kept_from = 0
        self._lock = threading.RLock()

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Return where the next read starts."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move; beyond the end is allowed, and reads nothing."""
        with self._lock:
            position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
            if position < 0:
                raise ValueError("a position before the start")
            self._position = position
            return position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end; all that is left for None or a negative number."""
        with self._lock:
            self._check_open()
            left = max(self._size - self._position, 0)
            wanted = left if size is None or size < 0 else min(size, left)
            content = self._range(self._position, self._position + wanted)
            self._position += wanted
            return content

    def read1(self, size: int = -1, /) -> bytes:
        """Return the same as `read`."""
        return self.read(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer`; return how many bytes it got."""
        with memoryview(buffer) as view:
            content = self.read(view.nbytes)
            if content:  # an empty view cannot be cast
                view.cast("B")[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Let go of what it holds; a second time does nothing."""
        with self._lock:
            if not self.closed:
                super().close()
                self._kept = b""
                self._release()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("read of a closed reader")

    def _range(self, start: int, end: int) -> bytes:
        head = self._from_kept(start, end)
        start += len(head)
        if start >= end:
            return head
        if end - start >= self._read_ahead:
            return head + self._fetch(start, end)
        self._kept = self._fetch(start, min(start + self._read_ahead, self._size))
        self._kept_from = start
        return head + self._from_kept(start, end)

    def _from_kept(self, start: int, end: int) -> bytes:
        if not self._kept_from <= start < self._kept_from + len(self._kept):
            return b""
        return self._kept[start - self._kept_from : end - self._kept_from]
