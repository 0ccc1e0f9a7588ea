"""The shared set of scans, where it lies beside the repository: what each file is to give."""

from __future__ import annotations

import csv
from typing import Final

from schemas.errors import ErrorCode
from tests.services import ROOT

FOLDER: Final = ROOT.parent / "shared" / "data" / "ocr"
FILES: Final = sorted(path.name for path in FOLDER.iterdir() if path.is_file()) if FOLDER.is_dir() else []
MISSING: Final = "no shared/data/ocr beside the repository"
PAGES: Final = {"de_multipage.tif": 3, "de_scanned_2p.pdf": 2, "en_cardinal_4rot.pdf": 4}
ERRORS: Final = {
    "MANIFEST.tsv": ErrorCode.UNSUPPORTED_FORMAT,
    "x_bomb_60000.png": ErrorCode.IMAGE_TOO_LARGE,
    "x_empty.jpg": ErrorCode.EMPTY_DOCUMENT,
    "x_notimage.png": ErrorCode.UNSUPPORTED_FORMAT,
    "x_truncated.jpg": ErrorCode.DAMAGED_DOCUMENT,
    "x_truncated.png": ErrorCode.DAMAGED_DOCUMENT,
}
NOISE: Final = "x_tiny8.png"  # 8 by 8 pixels; what a network makes of it says nothing


def known_texts() -> dict[str, str]:
    """Return what the files say that somebody has written down; an empty text is a page without any."""
    with (FOLDER / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["ground_truth"] != "-"]
    texts = {row["file"]: (FOLDER / row["ground_truth"]).read_text(encoding="utf-8") for row in rows}
    return {name: text for name, text in texts.items() if name != NOISE}
