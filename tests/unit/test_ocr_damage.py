"""Files that decode without a complaint though part of the picture is gone: an error where it can be known."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from schemas.errors import ErrorCode
from tasks.ocr.documents import open_document
from tasks.ocr.limits import DocumentLimits
from tests.documents import DOCUMENTS, image, saved
from tests.letters import GERMAN_TICKET, scan
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Callable

END = b"\xff\xd9"
START_OF_SCAN = b"\xff\xda"


def outcome(data: bytes) -> ErrorCode | None:
    """The error of a document's only page; None if it has its pixels."""
    document = open_document(data, DocumentLimits())
    try:
        assert document.page(0).image.size
    except ItemFailed as failed:
        return failed.code
    return None


def zeroed(data: bytes, share: float = 0.5, length: int = 2_000) -> bytes:
    """The file as a disk has it on which a block was never written."""
    at = int(len(data) * share)
    return data[:at] + bytes(min(length, len(data) - at - 100)) + data[at + min(length, len(data) - at - 100) :]


def closed(data: bytes, share: float = 0.5) -> bytes:
    """A JPEG that was cut, and then ended as if it were whole."""
    return data[: int(len(data) * share)] + END


def without_last_scan(data: bytes) -> bytes:
    return data[: data.rindex(START_OF_SCAN)] + END


def jpeg(**options: object) -> bytes:
    with Image.open(io.BytesIO(scan(GERMAN_TICKET))) as page:
        return saved(page, "JPEG", quality=85, **options)


def gray(mode: str = "RGB") -> Image.Image:
    """A page whose lower half is as gray as what was never decoded."""
    page = image("L")
    page.paste(128, (0, page.height // 2, page.width, page.height))
    return page.convert(mode)


TOLD: dict[str, Callable[[], bytes]] = {
    "jpeg zeroed": lambda: zeroed(jpeg()),
    "jpeg zeroed to its end": lambda: zeroed(jpeg(), 0.5, 10**9),
    "jpeg zeroed up to its end marker": lambda: (whole := jpeg())[:40_000] + bytes(len(whole) - 40_002) + END,
    "gray jpeg zeroed": lambda: zeroed(DOCUMENTS["jpeg-gray"]()),
    "jpeg cut and closed": lambda: closed(jpeg()),
    "jpeg cut early and closed": lambda: closed(jpeg(), 0.1),
    "jpeg cut late and closed": lambda: closed(jpeg(), 0.97),
    "gray jpeg cut and closed": lambda: closed(DOCUMENTS["jpeg-gray"]()),
    "CMYK jpeg cut and closed": lambda: closed(DOCUMENTS["jpeg-cmyk-adobe"]()),
    "jpeg of own tables cut and closed": lambda: closed(jpeg(optimize=True)),
    "progressive jpeg cut and closed": lambda: closed(jpeg(progressive=True)),
    "progressive jpeg cut early and closed": lambda: closed(jpeg(progressive=True), 0.15),
    "progressive jpeg without its last scan": lambda: without_last_scan(jpeg(progressive=True)),
    "png zeroed": lambda: zeroed(DOCUMENTS["png"]()),
    "48-bit png zeroed": lambda: zeroed(DOCUMENTS["png-48-bit"](), 0.3, 600),
    "uncompressed png zeroed": lambda: zeroed(saved(image(), "PNG", compress_level=0)),
    "lzw tiff zeroed": lambda: zeroed(DOCUMENTS["tiff-lzw"](), 0.3),
    "deflated tiff zeroed": lambda: zeroed(saved(image(), "TIFF", compression="tiff_adobe_deflate"), 0.5, 500),
}

# Nobody can tell: the picture shows it, or is lost. What matters is that the worker lives.
NOT_TOLD: dict[str, Callable[[], bytes]] = {
    "bmp zeroed": lambda: zeroed(DOCUMENTS["bmp"]()),
    "tiff zeroed": lambda: zeroed(DOCUMENTS["tiff"]()),
}

WHOLE: dict[str, Callable[[], bytes]] = {
    "jpeg": jpeg,
    "jpeg of own tables": lambda: jpeg(optimize=True),
    "progressive jpeg": lambda: jpeg(progressive=True),
    "jpeg with restarts": lambda: jpeg(restart_marker_rows=1),
    "blank jpeg": lambda: saved(Image.new("RGB", (3_000, 3_000), "white"), "JPEG"),
    "blank jpeg of own tables": lambda: saved(Image.new("RGB", (3_000, 3_000), "white"), "JPEG", optimize=True),
    "blank gray jpeg of own tables": lambda: saved(Image.new("L", (3_000, 3_000), 255), "JPEG", optimize=True),
    "blank progressive jpeg": lambda: saved(Image.new("RGB", (3_000, 3_000), "white"), "JPEG", progressive=True),
    "black jpeg": lambda: saved(Image.new("RGB", (3_000, 3_000)), "JPEG"),
    "jpeg that is gray below": lambda: saved(gray(), "JPEG", quality=95),
    "gray jpeg that is gray below": lambda: saved(gray("L"), "JPEG", quality=95),
    "progressive jpeg that is gray below": lambda: saved(gray(), "JPEG", quality=95, progressive=True),
    "CMYK jpeg that is gray below": lambda: saved(gray("CMYK"), "JPEG", quality=95),
    "even gray jpeg": lambda: saved(Image.new("RGB", (800, 800), (128, 128, 128)), "JPEG"),
    "slope": lambda: saved(Image.fromarray(np.linspace(255, 0, 2048).astype(np.uint8)[None].repeat(64, 0)), "JPEG"),
    "jpeg filled up before its end marker": lambda: jpeg()[:-2] + bytes(5_000) + END,
    "jpeg of own tables filled up before its end marker": lambda: jpeg(optimize=True)[:-2] + bytes(5_000) + END,
    "jpeg with zeros behind it": lambda: jpeg() + bytes(5_000),
    "jpeg with zeros in a comment": lambda: jpeg(comment=bytes(5_000)),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_picture_of_which_a_part_is_gone_is_damaged(name: str) -> None:
    assert outcome(TOLD[name]()) is ErrorCode.DAMAGED_DOCUMENT


@pytest.mark.parametrize("name", NOT_TOLD)
def test_zeros_that_are_black_pixels_are_taken_for_them(name: str) -> None:
    assert outcome(NOT_TOLD[name]()) is None


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_picture_is_not_taken_for_a_damaged_one(name: str) -> None:
    assert outcome(WHOLE[name]()) is None
