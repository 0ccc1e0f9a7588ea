"""Whether a PNG holds all the rows that its header promises, as they were written.

Why it exists: Pillow takes a stream that ends early, but in order, for a whole one, and leaves the missing rows black;
and it compares no checksum of the pixels, so that zeros in their place may become pixels, too. A page would lose its
text without an error. It decodes no pixel; it adds up the chunks, and counts what the stream inflates to.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_CHUNK: Final = 8
_CHUNK_HEAD: Final = struct.Struct(">I4s")
_HEADER: Final = struct.Struct(">IIBBBBB")
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Adam7: where each pass starts, and its steps, across and down.
_PASSES: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_WHOLE: Final = ((0, 0, 1, 1),)
_INFLATED_BYTES: Final = 1 << 20
_PIXELS: Final = b"IDAT"
_CHECKSUM_BYTES: Final = 4
_CRC_OF_IDAT: Final = zlib.crc32(_PIXELS)


def is_complete(data: bytes) -> bool:
    """Return whether the pixels of a PNG that a decoder has accepted are all there; takes as long as decoding."""
    missing_bytes = _promised_bytes(data)
    inflater = zlib.decompressobj()
    for part in _pixel_chunks(data):
        rest = part
        while rest and missing_bytes > 0:
            missing_bytes -= len(inflater.decompress(rest, _INFLATED_BYTES))
            rest = inflater.unconsumed_tail
        if inflater.eof:
            break
    return missing_bytes <= len(inflater.flush())


def is_as_written(data: bytes) -> bool:
    """Return whether the checksum of every chunk with pixels is right; one that the file ends before is not missed."""
    for content, checksum in _checked_chunks(data):
        if len(checksum) == _CHECKSUM_BYTES and zlib.crc32(content, _CRC_OF_IDAT) != int.from_bytes(checksum):
            return False
    return True


def _promised_bytes(data: bytes) -> int:
    """Return the length of the inflated stream: each row of each pass has a byte for its filter."""
    width, height, depth, kind, _, _, interlaced = _HEADER.unpack_from(data, _FIRST_CHUNK + _CHUNK_HEAD.size)
    bits = depth * _CHANNELS[kind]
    promised = 0
    for left, top, across, down in _PASSES if interlaced else _WHOLE:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            promised += rows * (1 + -(-columns * bits // 8))
    return promised


def _pixel_chunks(data: bytes) -> Iterator[bytes]:
    return (content for content, _ in _checked_chunks(data))


def _checked_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the content of each chunk with pixels, and its checksum."""
    place = _FIRST_CHUNK
    while place + _CHUNK_HEAD.size <= len(data):
        length, kind = _CHUNK_HEAD.unpack_from(data, place)
        start = place + _CHUNK_HEAD.size
        place = start + length + _CHECKSUM_BYTES
        if kind == _PIXELS:
            yield data[start : start + length], data[start + length : place]
