"""Whether a JPEG holds the whole picture, as far as its bytes can tell.

Why it exists: the decoder takes whatever it finds for a picture. Where a file's middle was never written, it reads the
zeros as pixels; where the coded data end early, but in order, it leaves the rest gray; where a progressive file lacks
its last scans, the picture is a blur. Each would lose text without an error. Hardly anything is decoded here: a
doubtful picture once more and with other bytes at its end, at an eighth of its size.

What it cannot know: that a run of zeros is a hole where an encoder could have written it, as in most scans of a
progressive file, or with tables made for the picture; and any other damage that still makes codes.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator

_ZEROS: Final = bytes(128)  # more than any block of a picture takes where zeros stand for coefficients
_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # not a stuffed byte, a restart, or filling
_END: Final = b"\xff\xd9"
_HUFFMAN_TABLES: Final = 0xC4
_SCAN: Final = 0xDA
_BASELINE: Final = frozenset({0xC0, 0xC1})
_PROGRESSIVE: Final = 0xC2
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_AC_TABLE: Final = 0x10  # beside its number
_END_OF_BLOCK: Final = 0
_SIZE: Final = 0x0F  # of a symbol: the bits of its coefficient; without them it is the end of blocks, or zeros
_TO_THE_LAST_BIT: Final = 0x0F
_COEFFICIENTS: Final = 64
_GRAY: Final = frozenset({127, 128})
_MORE: Final = bytes(range(1, 255, 2))  # codes of some kind, without a marker
_SMALLEST: Final = 8  # the decoder divides sides by up to this


@dataclass(slots=True)
class _Headers:
    """What the segments before a scan have said.

    Attributes:
        frame: its marker, which says how it is coded; 0 before it.
        components: their numbers.
        first: of each Huffman table, by class and number, what a code of zeros alone stands for.
        missing: of a progressive file, the coefficients of each component that are not there to the last bit.
    """

    frame: int = 0
    components: bytes = b""
    first: dict[int, int] = field(default_factory=dict)
    missing: dict[int, set[int]] = field(default_factory=dict)


def has_hole(data: bytes) -> bool:
    """Return whether part of a JPEG that a decoder has accepted was never written: zeros, or scans that are missing."""
    headers = _Headers()
    for marker, start, end in _segments(data):
        content = data[start:end]
        if marker in _FRAMES:
            _take_frame(headers, marker, content)
        elif marker == _HUFFMAN_TABLES:
            _take_tables(headers, content)
        elif marker == _SCAN:
            behind = _MARKER.search(data, end)
            if _take_scan(headers, content) and _is_zeroed(data, end, behind.start() if behind else len(data)):
                return True
    return headers.frame == _PROGRESSIVE and any(headers.missing.values())


def ends_early(image: Image.Image, data: bytes) -> bool:
    """Return whether the coded data end before the picture does.

    If they do, what is put before the end marker becomes picture; else nobody reads it. Decodes only a picture whose
    last pixel is gray as one that was never decoded.

    Args:
        image: the same file, decoded.
        data: the file.
    """
    last = image.getpixel((image.width - 1, image.height - 1))
    values = last if isinstance(last, tuple) else (last,)
    end = data.rfind(_END)
    if end < 0 or not _GRAY.issuperset(values):
        return False
    return _small(data) != _small(data[:end] + _MORE + data[end:])


def _is_zeroed(data: bytes, start: int, end: int) -> bool:
    """Return whether coded data hold zeros in place of codes.

    At their end they may be mere filling, which some devices write behind a whole picture: then it is the same without.
    """
    at = data.find(_ZEROS, start, end)
    if at < 0:
        return False
    is_followed = bool(data[at:end].strip(b"\x00"))
    return is_followed or _small(data) != _small(data[: at + 1] + data[end:])  # one may belong to the byte before


def _small(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        image.draft(None, (max(1, image.width // _SMALLEST), max(1, image.height // _SMALLEST)))
        return image.tobytes()


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each segment's marker, and where its content starts and ends; a scan's coded data lie behind it."""
    found = _MARKER.search(data, 2)
    while found and data[found.start() : found.end()] != _END:
        start = found.end() + 2
        end = found.end() + int.from_bytes(data[found.end() : start])
        yield data[found.start() + 1], start, end
        found = _MARKER.search(data, max(end, start))


def _take_frame(headers: _Headers, marker: int, content: bytes) -> None:
    headers.frame = marker
    headers.components = content[6::3][: content[5]]
    headers.missing = {component: set(range(_COEFFICIENTS)) for component in headers.components}


def _take_tables(headers: _Headers, content: bytes) -> None:
    """Note the first symbol of each table: that of the shortest code, which is zeros."""
    counts = 16
    while len(content) > 1 + counts:
        symbols = sum(content[1 : 1 + counts])
        headers.first[content[0]] = content[1 + counts]
        content = content[1 + counts + symbols :]


def _take_scan(headers: _Headers, content: bytes) -> bool:
    """Note what a scan brings; return whether a run of zeros in its data is a hole.

    It is none where a code of zeros means that a block ends: that is how a blank region may be written.
    """
    components = range(content[0])
    spectral_start, spectral_end, approximation = content[1 + 2 * len(components) :][:3]
    if approximation & _TO_THE_LAST_BIT == 0:
        for number in components:
            headers.missing.get(content[1 + 2 * number], set()).difference_update(
                range(spectral_start, spectral_end + 1)
            )
    symbols = [headers.first.get(_AC_TABLE | content[2 + 2 * number] & 0x0F, 0) for number in components]
    if headers.frame in _BASELINE:
        return any(symbol != _END_OF_BLOCK for symbol in symbols)
    is_first_of_its_coefficients = spectral_start > 0 and approximation >> 4 == 0
    return headers.frame == _PROGRESSIVE and is_first_of_its_coefficients and symbols[0] & _SIZE != 0
