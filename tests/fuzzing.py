"""Damaged documents by the thousand, in a process of their own: `python -m tests.fuzzing FIRST CPU_SECONDS [FOLDER]`.

Each case is made from its number alone. The number is printed before the case is run, so that the last line names the
one that ended the process: by a crash, by more memory than decoding may have, or by more CPU time.
"""

from __future__ import annotations

import random
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.ocr.documents import open_document
from tasks.ocr.limits import MIB, DocumentLimits
from tests.documents import DOCUMENTS
from tests.pdf_files import filled_form
from tests.peaks import most_held_mib
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = DocumentLimits(
    pages=20, image_pixels=20_000_000, memory_bytes=128 * MIB, page_pixels=4_000_000, pdf_pixels=1_000_000
)
PROCESS_BYTES = 640 * MIB
CASE_CPU_S = 20.0
HEADER_BYTES = 400
LIES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
LONGEST_SEED = 450_000


def flipped(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    del other
    for _ in range(rng.choice((1, 1, 2, 5, 20, 100))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def cut(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    del other
    return data[: rng.randrange(len(data))]


def lying(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    """Numbers of the header, and those of the digits of a PDF, replaced by absurd ones."""
    del other
    for _ in range(rng.randrange(1, 4)):
        form = rng.choice(("<H", ">H", "<I", ">I", "B"))
        value = rng.choice(LIES) & ((1 << 8 * struct.calcsize(form)) - 1)
        at = rng.randrange(min(len(data), HEADER_BYTES))
        data[at : at + struct.calcsize(form)] = struct.pack(form, value)
    return data


def numbers(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    del other
    digits = [at for at, byte in enumerate(data[: 8 * HEADER_BYTES]) if 0x30 <= byte <= 0x39] or [0]
    for _ in range(rng.randrange(1, 6)):
        at = rng.choice(digits)
        data[at : at + 1] = rng.choice((b"0", b"9", b"-1", b"99999", b"4294967296", b"0.0001", b""))
    return data


def tails(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    """The last bytes, where a TIFF has its directories and a PDF its table."""
    del other
    for _ in range(rng.randrange(1, 8)):
        data[-rng.randint(1, min(len(data), HEADER_BYTES))] = rng.randrange(256)
    return data


def spliced(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    return data[: rng.randrange(len(data))] + bytearray(other[rng.randrange(len(other)) :])


def repeated(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    del other
    start = rng.randrange(len(data))
    part = data[start : start + rng.randrange(1, 2_000)]
    return data[:start] + part * rng.randrange(2, 20) + data[start:]


def dropped(data: bytearray, rng: random.Random, other: bytes) -> bytearray:
    del other
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 200) :]


MUTATIONS: tuple[Callable[[bytearray, random.Random, bytes], bytearray], ...] = (
    flipped,
    cut,
    lying,
    numbers,
    tails,
    spliced,
    repeated,
    dropped,
)


def seeds(folder: str | None) -> list[bytes]:
    found = [make() for make in DOCUMENTS.values()] + [filled_form("Muster")]
    if folder is not None:
        files = sorted(path for path in Path(folder).iterdir() if path.is_file() and "huge" not in path.name)
        found += [path.read_bytes() for path in files if path.stat().st_size]
    return [data for data in found if len(data) <= LONGEST_SEED]


def case(number: int, corpus: list[bytes]) -> bytes:
    rng = random.Random(number)  # noqa: S311 - to be repeated, not to be secret
    data = bytearray(corpus[number % len(corpus)])
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(data, rng, rng.choice(corpus)) or bytearray(b"\x00")
    return bytes(data)


def attempt(data: bytes) -> None:
    """Read all of a document; only an item's error may come of it."""
    try:
        document = open_document(data, LIMITS)
    except ItemFailed:
        return
    for index in range(document.pages):
        try:
            page = document.page(index)
        except ItemFailed:
            continue
        assert page.image.size <= 3 * LIMITS.page_pixels * 1.1
    document.close()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    corpus = seeds(sys.argv[3] if len(sys.argv) > 3 else None)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (PROCESS_BYTES, PROCESS_BYTES))
    ends_s, number = time.process_time() + seconds, first
    while time.process_time() < ends_s:
        tell(str(number))
        signal.setitimer(signal.ITIMER_PROF, CASE_CPU_S)
        attempt(case(number, corpus))
        number += 1
    tell(f"done {most_held_mib() if sys.platform == 'linux' else 0}")


if __name__ == "__main__":
    main()
