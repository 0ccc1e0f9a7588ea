"""Which format a document has, by its first bytes, and which places in it its pages start at.

Why it exists: a name or a content type may lie, and the image library guesses by trying one format after the other.
Here the first bytes decide, once; whatever they do not name is never handed to any decoder. A TIFF's pages are found
by following its directories, without reading what is in them, so that a broken page does not hide the next.
It decodes nothing and judges no size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from schemas.errors import ErrorCode
from worker.errors import ItemFailed


class Format(StrEnum):
    """The formats that are opened, by the image library's names."""

    JPEG = "JPEG"
    PNG = "PNG"
    TIFF = "TIFF"
    WEBP = "WEBP"
    BMP = "BMP"
    GIF = "GIF"
    PDF = "PDF"


_MAGIC: Final = (
    (b"\xff\xd8\xff", Format.JPEG),
    (b"\x89PNG\r\n\x1a\n", Format.PNG),
    (b"II*\x00", Format.TIFF),
    (b"MM\x00*", Format.TIFF),
    (b"II+\x00\x08\x00\x00\x00", Format.TIFF),
    (b"MM\x00+\x00\x08\x00\x00", Format.TIFF),
    (b"GIF87a", Format.GIF),
    (b"GIF89a", Format.GIF),
    (b"BM", Format.BMP),
)
_PDF_MARK: Final = b"%PDF-"
_PDF_SEARCHED_BYTES: Final = 1024  # Acrobat takes a header anywhere in here, and scanners put junk before it


def sniff(data: bytes) -> Format:
    """Return the format of a document.

    Raises:
        ItemFailed: `empty_document` or `unsupported_format`.
    """
    if not data:
        raise ItemFailed(ErrorCode.EMPTY_DOCUMENT, "the document has no bytes")
    for magic, found in _MAGIC:
        if data.startswith(magic):
            return found
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Format.WEBP
    if _PDF_MARK in data[:_PDF_SEARCHED_BYTES]:
        return Format.PDF
    raise ItemFailed(ErrorCode.UNSUPPORTED_FORMAT, f"the document is none of {', '.join(Format)}")


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a TIFF writes its numbers.

    Attributes:
        offset_at: where the first directory's place is written.
        offset: how a place is written, for `struct`.
        count: how a directory's number of entries is written.
        entry_bytes: of one entry.
    """

    offset_at: int
    offset: str
    count: str
    entry_bytes: int

    @classmethod
    def of(cls, data: bytes) -> _Layout:
        order = "<" if data.startswith(b"I") else ">"
        if b"+" in data[:4]:
            return cls(8, order + "Q", order + "Q", 20)
        return cls(4, order + "I", order + "H", 12)


def tiff_directories(data: bytes, most: int) -> list[int]:
    """Return where each page's directory starts; at most `most + 1`, so that a caller sees that there are more.

    A directory outside of the file counts as one more page, a broken one; a chain that returns to itself ends there.

    Raises:
        ItemFailed: `damaged_document`: the file ends within its header; `empty_document`: it has no directory.
    """
    layout = _Layout.of(data)
    places: list[int] = []
    seen: set[int] = set()
    place = _number(data, layout.offset, layout.offset_at)
    if place is None:
        raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "the document ends within its header")
    while place and place not in seen and len(places) <= most:
        places.append(place)
        seen.add(place)
        entries = _number(data, layout.count, place) or 0
        place = _number(data, layout.offset, place + struct.calcsize(layout.count) + entries * layout.entry_bytes)
    if not places:
        raise ItemFailed(ErrorCode.EMPTY_DOCUMENT, "the document has no pages")
    return places


def tiff_of_page(data: bytes, directory: int) -> bytes:
    """Return the same file with the page whose directory starts there as its first."""
    layout = _Layout.of(data)
    written = struct.pack(layout.offset, directory)
    return b"".join((data[: layout.offset_at], written, data[layout.offset_at + len(written) :]))


def _number(data: bytes, form: str, place: int) -> int | None:
    """Return the number that is written at `place`; None where the file ends before it."""
    if place + struct.calcsize(form) > len(data):
        return None
    (number,) = struct.unpack_from(form, data, place)
    return int(number)
