"""A seekable binary file as Arrow reads it, and the one place where Arrow's errors become ours.

Arrow calls back into the file that it was given. What that file raises (a store that timed out, say) is its owner's
to judge and leaves unchanged; whatever Arrow itself finds is wrong with the content and becomes `UnreadableTable`.
It knows neither Parquet nor stores.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from worker.errors import UnreadableTable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source:
    """Read access to a caller's file, which stays the caller's: closing this closes nothing.

    Args:
        file: seekable and binary; read from one thread at a time.
        name: what errors call it.

    Attributes:
        size: bytes.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.size = file.seek(0, os.SEEK_END)
        self._file = file
        self._failure: BaseException | None = None

    closed = False

    def close(self) -> None:
        """Do nothing; the caller closes its own file."""

    def readable(self) -> bool:
        """Return True, as Arrow asks."""
        return True

    def seekable(self) -> bool:
        """Return True, as Arrow asks."""
        return True

    def writable(self) -> bool:
        """Return False, as Arrow asks."""
        return False

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes; blocks as the file does, raises what the file raises."""
        try:
            return self._file.read(size)
        except BaseException as error:
            self._failure = error
            raise

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as the file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._file.tell()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate what Arrow raises inside.

        Raises:
            UnreadableTable: the content is damaged or not what it says.
        """
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure from None
            raise UnreadableTable(self.name, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    """The first line: what follows may quote values."""
    return "damaged text" if isinstance(error, UnicodeDecodeError) else str(error).partition("\n")[0]
