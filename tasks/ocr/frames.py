"""What goes over the pipes between a worker and the process that decodes for it.

A request is one byte for its kind, eight for the length, and that many bytes; an answer is four bytes for the length of
a JSON object, eight for that of the pixels, and both. It knows neither processes nor documents.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

    from tasks.ocr.pages import Pixels

_REQUEST: Final = struct.Struct("!cQ")
_ANSWER: Final = struct.Struct("!IQ")


class Ask(Enum):
    """What can be asked for."""

    OPEN = b"O"  # with the file's bytes
    PAGE = b"P"  # with the page's index, in decimal


def write_request(pipe: IO[bytes], ask: Ask, content: bytes) -> None:
    """Send a request; blocks until it is taken.

    Raises:
        OSError: nobody reads any more.
    """
    pipe.write(_REQUEST.pack(ask.value, len(content)))
    pipe.write(content)
    pipe.flush()


def read_request(pipe: IO[bytes]) -> tuple[Ask, bytes] | None:
    """Return the next request; None at the end."""
    head = pipe.read(_REQUEST.size)
    if len(head) < _REQUEST.size:
        return None
    kind, length = _REQUEST.unpack(head)
    return Ask(kind), pipe.read(length)


def write_answer(pipe: IO[bytes], facts: Mapping[str, object], pixels: Pixels | None = None) -> None:
    """Send an answer.

    Args:
        pipe: where to.
        facts: what JSON can say.
        pixels: `uint8`, contiguous.
    """
    text = json.dumps(facts).encode()
    pipe.write(_ANSWER.pack(len(text), 0 if pixels is None else pixels.nbytes))
    pipe.write(text)
    if pixels is not None:
        pipe.write(pixels.data)
    pipe.flush()


def read_answer(pipe: IO[bytes]) -> tuple[dict[str, Any], Pixels]:
    """Return the next answer: the facts, and the pixels as `uint8[bytes]`; blocks until it is there.

    Raises:
        EOFError: the other side ended before it had said all.
    """
    text_bytes, pixel_bytes = _ANSWER.unpack(_exactly(pipe, _ANSWER.size).data)
    facts = json.loads(bytes(_exactly(pipe, text_bytes).data))
    return facts, _exactly(pipe, pixel_bytes)


def _exactly(pipe: IO[bytes], length: int) -> Pixels:
    content = np.empty(length, np.uint8)
    rest = memoryview(content.data)
    while rest:
        taken = pipe.readinto(rest)  # type: ignore[attr-defined] # every buffered pipe has it, its base does not
        if not taken:
            raise EOFError
        rest = rest[taken:]
    return content
