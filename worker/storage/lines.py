"""The lines of a text file as bytes, with the offset of each, and never more than one of them in memory.

It knows neither CSV nor JSON; what a line means is `worker.storage.rows`' business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from worker.errors import OversizedTable, UnreadableTable

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES_MAX: Final = 16 << 20
_READ_BYTES: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"
_BOMS_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


class Lines:
    """Iterates over the lines from `offset` on, each with its line end.

    Args:
        file: seekable and binary.
        name: what errors call it.
        offset: byte at which a line begins.

    Attributes:
        offset: byte after the line that came last.

    Raises:
        OversizedTable: while iterating: a line is longer than `LINE_BYTES_MAX`.
        UnreadableTable: at once: the file is UTF-16.
    """

    def __init__(self, file: BinaryIO, name: str, offset: int = 0) -> None:
        self._file = file
        self._name = name
        self.offset = offset
        if not offset:
            self._skip_bom()

    def _skip_bom(self) -> None:
        self._file.seek(0)
        begin = self._file.read(len(_BOM))
        if begin.startswith(_BOMS_UTF16):
            raise UnreadableTable(self._name, "it is UTF-16; convert it to UTF-8")
        if begin == _BOM:
            self.offset = len(_BOM)

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while data := self._after(rest):
            *lines, rest = _split(rest + data)
            for line in lines:
                self.offset += len(line)
                yield line
            if len(rest) > LINE_BYTES_MAX:
                text = f"the line at byte {self.offset} is longer than {LINE_BYTES_MAX} bytes"
                raise OversizedTable(self._name, text)
        if rest:
            self.offset += len(rest)
            yield rest

    def _after(self, rest: bytes) -> bytes:
        """Read on; others may have moved the file meanwhile."""
        self._file.seek(self.offset + len(rest))
        return self._file.read(_READ_BYTES)


def _split(data: bytes) -> list[bytes]:
    """Split after each line feed; the last piece, maybe empty, has none."""
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), rest]
