"""The pages of the OCR benchmark: the shared scans with known text, and pages that the project renders.

All are decoded by this project, once, so that every contestant reads the same pixels: what others make of a CMYK or a
16-bit file is not measured here. Several pages of a document are several pages with one text between them.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.ocr.specimens import CALADEA, LATO, read_fonts, specimens
from tests.benchmarks.models import SHARED
from tests.benchmarks.ocr_reader import pages
from worker.convert.wheels import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCANS = SHARED / "ocr"
RENDERED = 8
_TURNED = "rot"  # in the name of a scan that is not upright


@dataclass(frozen=True, slots=True)
class BenchDocument:
    """A document whose text is known.

    Attributes:
        name: of the file it comes from.
        pages: as `.npy` files.
        text: what it says; spaces and line ends count as one.
        is_upright: whether RapidOCR, which turns no page, can read it.
    """

    name: str
    pages: tuple[Path, ...]
    text: str
    is_upright: bool


def bench_documents(directory: Path, wheels: Path) -> list[BenchDocument]:
    """Decode and render all documents into `directory`. Blocks for half a minute."""
    directory.mkdir(parents=True, exist_ok=True)
    return [*_scans(directory), *_rendered(directory, wheels)]


def _scans(directory: Path) -> Iterator[BenchDocument]:
    if not SCANS.is_dir():
        return
    with (SCANS / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["ground_truth"] != "-"]
    for row in rows:
        text = (SCANS / row["ground_truth"]).read_text(encoding="utf-8")
        if text.strip():
            paths = [
                _saved(directory / f"{row['file']}-{number}.npy", image)
                for number, image in enumerate(pages(SCANS / row["file"]))
            ]
            yield BenchDocument(row["file"], tuple(paths), text, _TURNED not in row["file"])


def _rendered(directory: Path, wheels: Path) -> Iterator[BenchDocument]:
    fonts = read_fonts(fetch(LATO, wheels), fetch(CALADEA, wheels))
    for number, specimen in enumerate(specimens(fonts, "test", RENDERED)):
        path = _saved(directory / f"rendered-{number}.npy", specimen.image)
        yield BenchDocument(f"rendered-{number}", (path,), "\n".join(specimen.lines), is_upright=True)


def _saved(path: Path, image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Path:
    np.save(path, image)
    return path
