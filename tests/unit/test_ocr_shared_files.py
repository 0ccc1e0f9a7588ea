"""Every file of the shared set of scans gives its pages, or the right error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.ocr.decoder import Decoder
from tasks.ocr.limits import DocumentLimits
from tests.shared_scans import ERRORS, FILES, FOLDER, MISSING, PAGES
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.errors import ErrorCode

pytestmark = pytest.mark.skipif(not FILES, reason=MISSING)


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
