"""What the largest documents take at most, measured by the kernel over a process that opens just one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests import documents, pdf_files
from tests.documents import saved
from tests.peaks import ROOT, peak

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most that a process held")


def one_bit_png() -> bytes:
    """140 megapixels of text in tens of kilobytes."""
    sheet = Image.new("1", (14_000, 10_000), 1)
    sheet.paste(documents.image("1"), (2_000, 2_000))
    return saved(sheet, "PNG")


def alpha_png() -> bytes:
    """150 megapixels with alpha: four bytes each, once decoded."""
    return documents.even_png(15_000, 10_000, b"\x09\x09\x09\x63")


def big_jpeg(**options: object) -> bytes:
    return saved(Image.new("RGB", (15_000, 10_000), (200, 90, 20)), "JPEG", **options)


def one_strip_tiff() -> bytes:
    return saved(Image.new("RGB", (9_000, 9_000)), "TIFF", compression="tiff_lzw", strip_size=1 << 30)


def pdf_of_a_huge_image() -> bytes:
    """A PDF of some hundred kilobytes whose one image has 400 megapixels in colour."""
    side = 20_000
    pixels = documents.deflated(bytes(3 * side), side)
    return pdf_files.one_image(pdf_files.image_object(pixels, side, side, b"FlateDecode"), side, side)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "outcome", "most_mib"),
    [
        pytest.param(one_bit_png, "(5000, 7000, 3)", 450, id="140-megapixel png of 1 bit"),
        pytest.param(alpha_png, "(5000, 7500, 3)", 1_000, id="150-megapixel png with alpha"),
        pytest.param(big_jpeg, "(5000, 7500, 3)", 450, id="150-megapixel jpeg"),
        pytest.param(lambda: big_jpeg(progressive=True), "(5000, 7500, 3)", 1_000, id="150-megapixel progressive jpeg"),
        pytest.param(one_strip_tiff, "(4500, 4500, 3)", 1_000, id="81-megapixel tiff of one strip"),
        pytest.param(pdf_of_a_huge_image, "(5000, 5000, 3)", 450, id="400-megapixel image in a pdf"),
        pytest.param(
            lambda: pdf_files.empty_page(b"0 0 1000000 1000000"), "(5000, 5000, 3)", 300, id="pdf page of 350 metres"
        ),
    ],
)
def test_a_page_takes_no_more_than(make: Callable[[], bytes], outcome: str, most_mib: int, tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(make())
    found, used_mib = peak(path)

    assert found == outcome
    assert used_mib < most_mib


@pytest.mark.parametrize("name", ["x_hugemono_35000.pdf", "de_huge_140mp.png"])
def test_the_largest_of_the_shared_files_take_little(name: str) -> None:
    path = ROOT.parent / "shared" / "data" / "ocr" / name
    if not path.exists():
        pytest.skip(f"no {name} beside the repository")
    outcome, used_mib = peak(path)

    assert outcome.endswith(", 3)")
    assert used_mib < 500
