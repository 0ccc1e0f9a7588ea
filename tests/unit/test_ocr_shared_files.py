"""Every file of the shared set of scans gives its pages, or the right error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.decoder import Decoder
from tasks.ocr.limits import DocumentLimits
from tests.peaks import ROOT
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ROOT.parent / "shared" / "data" / "ocr"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.is_file()) if FOLDER.is_dir() else []
PAGES = {"de_multipage.tif": 3, "de_scanned_2p.pdf": 2, "en_cardinal_4rot.pdf": 4}
ERRORS = {
    "MANIFEST.tsv": ErrorCode.UNSUPPORTED_FORMAT,
    "x_bomb_60000.png": ErrorCode.IMAGE_TOO_LARGE,
    "x_empty.jpg": ErrorCode.EMPTY_DOCUMENT,
    "x_notimage.png": ErrorCode.UNSUPPORTED_FORMAT,
    "x_truncated.jpg": ErrorCode.DAMAGED_DOCUMENT,
    "x_truncated.png": ErrorCode.DAMAGED_DOCUMENT,
}
pytestmark = pytest.mark.skipif(not FILES, reason="no shared/data/ocr beside the repository")


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder(DocumentLimits()) as started:
        yield started


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_its_pages_or_its_error(decoder: Decoder, name: str) -> None:
    found: list[ErrorCode | None] = []
    try:
        document = decoder.open((FOLDER / name).read_bytes())
        for index in range(document.pages):
            page = document.page(index)
            assert page.image.size
            found.append(None)
    except ItemFailed as failed:
        found.append(failed.code)

    assert found == ([ERRORS[name]] if name in ERRORS else [None] * PAGES.get(name, 1))
