"""This project's page reader on one thread: a line in names a page, a line out tells what it reads.

Run as `python -m tests.benchmarks.ocr_reader PROFILE_DIRECTORY`. A page is a `.npy` file, or a document, of which every
page is decoded and read; what cannot be decoded is answered with its error's code.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tasks.ocr.documents import open_document
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.reader import PageReader
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def pages(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the pages of a file, uint8[height, width, 3] BGR, one at a time."""
    if path.suffix == ".npy":
        yield np.load(path)
        return
    document = open_document(path.read_bytes(), DocumentLimits())
    try:
        for index in range(document.pages):
            yield document.page(index).image
    finally:
        document.close()


def answer(reader: PageReader, path: Path) -> dict[str, object]:
    """Read a file; the CPU time is that of reading, not of decoding."""
    lines: list[str] = []
    cpu_s, error = 0.0, None
    try:
        for image in pages(path):
            start_s = time.process_time()
            lines += [line.text for line in reader.read(image).lines]
            cpu_s += time.process_time() - start_s
    except ItemFailed as failed:
        error = failed.code.value
    return {"lines": lines, "cpu_s": cpu_s, "peak_kib": peak_kib(), "error": error}


def peak_kib() -> int:
    """Return the most memory that this program took; `getrusage` tells that of who started it, if it was more."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    """Answer until standard input ends."""
    reader = PageReader(Path(sys.argv[1]))
    for request in sys.stdin:
        sys.stdout.write(json.dumps(answer(reader, Path(request.strip()))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
