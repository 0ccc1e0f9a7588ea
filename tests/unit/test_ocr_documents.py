"""Every kind of document becomes the picture that was put into it, or gets its one error."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from PIL import Image

from schemas.errors import ErrorCode
from tasks.ocr.documents import open_document
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.pages import Unit
from tests import documents, pdf_files
from tests.documents import BLACK, DOCUMENTS, HEIGHT, REFUSED, WHITE, WIDTH, picture, saved
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tasks.ocr.pages import Page

LIMITS = DocumentLimits()
CONVERSION_ERROR = 5.0  # of 255, on average; what a JPEG or one bit leaves of the picture


def read(data: bytes, limits: DocumentLimits = LIMITS) -> list[Page]:
    opened = open_document(data, limits)
    pages = [opened.page(index) for index in range(opened.pages)]
    opened.close()
    return pages


def difference(image: NDArray[np.uint8], expected: NDArray[np.uint8]) -> float:
    assert image.shape == expected.shape
    return float(np.abs(image.astype(int) - expected).mean())


def error_of(data: bytes, limits: DocumentLimits = LIMITS) -> ErrorCode:
    with pytest.raises(ItemFailed) as failed:
        read(data, limits)
    return failed.value.code


@pytest.mark.parametrize("name", DOCUMENTS.keys() - {"tiff-fax-204x98"})
def test_a_page_is_the_picture_in_the_file(name: str) -> None:
    for page in read(DOCUMENTS[name]()):
        assert difference(page.image, picture()) < CONVERSION_ERROR
        assert page.image.dtype == np.uint8
        assert page.image.flags.c_contiguous
        assert page.scale == pytest.approx((1, 1) if page.source.unit is Unit.PIXEL else (200 / 72, 200 / 72))


@pytest.mark.parametrize(
    ("name", "pages"), [("tiff-3-pages", 3), ("tiff-3-pages-deflate", 3), ("pdf-2-pages", 2), ("gif-animated", 1)]
)
def test_each_page_has_its_index(name: str, pages: int) -> None:
    assert [page.index for page in read(DOCUMENTS[name]())] == list(range(pages))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_has_its_error(name: str) -> None:
    make, code = REFUSED[name]
    assert error_of(make()) is code


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_does_not_quote_the_file(name: str) -> None:
    make, _ = REFUSED[name]
    with pytest.raises(ItemFailed) as failed:
        read(make())
    assert failed.value.message.isprintable()
    assert len(failed.value.message) < 120


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_light_text_on_nothing_gets_a_dark_ground(form: str) -> None:
    (page,) = read(saved(documents.ink_on_nothing(WHITE), form, lossless=True))
    assert difference(page.image, 255 - picture()) == 0


def test_light_text_of_one_transparent_colour_gets_a_dark_ground() -> None:
    light = Image.fromarray(255 - picture())
    (page,) = read(saved(light, "PNG", transparency=(0, 0, 0)))
    assert difference(page.image, 255 - picture()) == 0


def test_an_image_without_anything_visible_is_white() -> None:
    (page,) = read(saved(Image.new("RGBA", (30, 20), (255, 255, 255, 0)), "PNG"))
    assert (page.image == WHITE).all()


def test_the_pixels_of_a_fax_become_square() -> None:
    (page,) = read(DOCUMENTS["tiff-fax-204x98"]())
    stored_height = HEIGHT * 98 // 204

    assert page.image.shape == (round(stored_height * 204 / 98), WIDTH, 3)
    assert (page.source.width, page.source.height) == (WIDTH, stored_height)
    assert page.source.dpi == (204, 98)
    assert page.scale == pytest.approx((1, 204 / 98), abs=0.01)
    assert difference(cv2.resize(page.image, (WIDTH, HEIGHT)), picture()) < 15


def test_a_fax_that_is_stored_lying_is_turned_and_becomes_square() -> None:
    turned = documents.image("L").resize((HEIGHT * 98 // 204, WIDTH)).convert("1")
    (page,) = read(saved(turned, "TIFF", dpi=(98, 204), tiffinfo={0x0112: 6}))
    assert page.image.shape == (round(HEIGHT * 98 // 204 * 204 / 98), WIDTH, 3)


@pytest.mark.parametrize("dpi", [(1, 9600), (204, 196), (72, 72), (0, 0)])
def test_a_resolution_that_is_square_or_absurd_changes_nothing(dpi: tuple[int, int]) -> None:
    (page,) = read(saved(documents.image(), "TIFF", dpi=dpi))
    assert page.image.shape == picture().shape


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF"])
@pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (4000, 7)])
def test_any_shape_is_read(form: str, size: tuple[int, int]) -> None:
    (page,) = read(saved(Image.new("RGB", size, (255, 255, 255)), form))
    assert page.image.shape == (size[1], size[0], 3)
    assert (page.image == WHITE).all()


@pytest.mark.parametrize(("width", "height"), [(50_000, 3), (3, 50_000)])
def test_a_long_side_is_shortened_to_the_bound(width: int, height: int) -> None:
    (page,) = read(saved(Image.new("L", (width, height), 200), "PNG"))
    assert max(page.image.shape) == 25_000
    assert (page.image == 200).all()


def test_a_large_image_is_averaged_down_and_says_how_much() -> None:
    limits = DocumentLimits(page_pixels=WIDTH * HEIGHT // 4)
    (page,) = read(DOCUMENTS["png"](), limits)

    assert page.scale == (0.5, 0.5)
    expected = cv2.resize(picture(), (WIDTH // 2, HEIGHT // 2), interpolation=cv2.INTER_AREA)
    assert difference(page.image, expected) < 0.01


@pytest.mark.parametrize("name", ["jpeg", "jpeg-progressive", "jpeg-exif-6", "jpeg-cmyk-adobe"])
def test_a_large_jpeg_is_decoded_at_a_half(name: str) -> None:
    limits = DocumentLimits(page_pixels=WIDTH * HEIGHT // 4)
    (page,) = read(DOCUMENTS[name](), limits)

    assert page.scale == (0.5, 0.5)
    expected = cv2.resize(picture(), (WIDTH // 2, HEIGHT // 2), interpolation=cv2.INTER_AREA)
    assert difference(page.image, expected) < CONVERSION_ERROR


def test_strips_leave_no_seams() -> None:
    rows = np.add.outer(np.arange(3_001), np.arange(2_503)).astype(np.uint8)
    (page,) = read(saved(Image.fromarray(rows), "PNG"))
    assert (page.image[..., 0] == rows).all()


@pytest.mark.parametrize("name", ["tiff-lzw", "webp-lossless", "png", "jpeg-progressive", "gif", "bmp"])
def test_what_takes_too_much_memory_by_its_header_is_too_large(name: str) -> None:
    assert error_of(DOCUMENTS[name](), DocumentLimits(memory_bytes=50_000)) is ErrorCode.IMAGE_TOO_LARGE


def test_more_pixels_than_allowed_are_too_large() -> None:
    assert error_of(DOCUMENTS["png"](), DocumentLimits(image_pixels=WIDTH * HEIGHT - 1)) is ErrorCode.IMAGE_TOO_LARGE
    assert read(DOCUMENTS["png"](), DocumentLimits(image_pixels=WIDTH * HEIGHT))


def test_more_bytes_than_allowed_are_too_large() -> None:
    data = DOCUMENTS["png"]()
    assert error_of(data, DocumentLimits(document_bytes=len(data) - 1)) is ErrorCode.DOCUMENT_TOO_LARGE
    assert read(data, DocumentLimits(document_bytes=len(data)))


@pytest.mark.parametrize(("name", "pages"), [("tiff-3-pages", 3), ("pdf-2-pages", 2)])
def test_more_pages_than_allowed_are_too_many(name: str, pages: int) -> None:
    assert error_of(DOCUMENTS[name](), DocumentLimits(pages=pages - 1)) is ErrorCode.TOO_MANY_PAGES
    assert len(read(DOCUMENTS[name](), DocumentLimits(pages=pages))) == pages


@pytest.mark.parametrize("name", ["png", "tiff-3-pages", "pdf-2-pages"])
@pytest.mark.parametrize("index", [-1, 3, 10**9])
def test_a_page_that_is_not_there_is_no_such_page(name: str, index: int) -> None:
    opened = open_document(DOCUMENTS[name](), LIMITS)
    with pytest.raises(ItemFailed) as failed:
        opened.page(index)
    opened.close()
    assert failed.value.code is ErrorCode.NO_SUCH_PAGE


def outcomes(data: bytes) -> list[ErrorCode | None]:
    opened = open_document(data, LIMITS)
    found: list[ErrorCode | None] = []
    for index in range(opened.pages):
        try:
            opened.page(index)
            found.append(None)
        except ItemFailed as failed:
            found.append(failed.code)
    opened.close()
    return found


def test_a_broken_page_of_a_tiff_fails_alone() -> None:
    data = bytearray(documents.three_pages())
    second = documents.directories(bytes(data))[1]
    data[second + 2 : second + 50] = bytes(48)
    assert outcomes(bytes(data)) == [None, ErrorCode.DAMAGED_DOCUMENT, None]


def test_a_broken_first_page_of_a_tiff_fails_alone() -> None:
    data = bytearray(documents.three_pages())
    first = documents.directories(bytes(data))[0]
    data[first + 2 : first + 50] = bytes(48)
    assert outcomes(bytes(data)) == [ErrorCode.DAMAGED_DOCUMENT, None, None]


def test_a_huge_page_of_a_tiff_fails_alone() -> None:
    small, huge = DOCUMENTS["tiff-lzw"](), documents.tiff_claiming(width=60_000, height=60_000)
    assert outcomes(documents.joined(small, huge, small)) == [None, ErrorCode.IMAGE_TOO_LARGE, None]


def test_a_directory_outside_of_the_file_is_a_broken_page() -> None:
    assert outcomes(documents.tiff_claiming(next=10**9)) == [None, ErrorCode.DAMAGED_DOCUMENT]


def test_directories_in_a_circle_are_read_once() -> None:
    first = documents.directories(documents.tiff_claiming())[0]
    assert outcomes(documents.tiff_claiming(next=first)) == [None]


def test_a_page_of_a_pdf_with_a_huge_image_fails_alone() -> None:
    assert outcomes(pdf_files.jpeg_2000_claiming(60_000)) == [ErrorCode.IMAGE_TOO_LARGE, None]


@pytest.mark.parametrize(
    ("box", "size"),
    [
        (b"0 0 595 842", (2339, 1653)),
        (b"0 0 8400 8400", (5000, 5000)),
        (b"0 0 14400 14400", (5000, 5000)),
        (b"0 0 1000000 1000000", (5000, 5000)),
        (b"0 0 100000 100", (8, 8000)),
        (b"0 0 1 1", (3, 3)),
        (b"-100 -100 100 100", (556, 556)),
        (b"100 100 0 0", (278, 278)),
    ],
)
def test_a_page_of_any_box_is_rendered_within_its_bounds(box: bytes, size: tuple[int, int]) -> None:
    (page,) = read(pdf_files.empty_page(box))
    assert page.image.shape[:2] == pytest.approx(size, abs=2)
    assert max(page.image.shape) <= LIMITS.pdf_side_px
    assert (page.image == WHITE).all()


@pytest.mark.parametrize(
    "box", [b"0 0 1e30 1e30", b"0 0 0 0", b"nan nan nan nan", b"0 0 1e8 1", b"", b"(x) /y [] <<>>"]
)
def test_a_page_of_an_absurd_box_has_a_usable_size_or_an_error(box: bytes) -> None:
    assert outcomes(pdf_files.empty_page(box))[0] in {None, ErrorCode.DAMAGED_DOCUMENT}


def test_a_turned_page_of_a_pdf_has_its_size_as_seen() -> None:
    (page,) = read(DOCUMENTS["pdf-turned"]())
    assert (page.source.width, page.source.height) == pytest.approx((WIDTH * 72 / 200, HEIGHT * 72 / 200), abs=0.1)


def test_what_was_filled_into_a_form_is_drawn() -> None:
    (page,) = read(pdf_files.filled_form("Mustermann"))
    assert (page.image < 100).any()


def test_a_pdf_after_junk_is_read() -> None:
    assert read(b"\r\n\x00 junk" + DOCUMENTS["pdf-2-pages"]())


def test_metadata_that_cannot_be_read_turns_nothing() -> None:
    exif = b"Exif\x00\x00II*\x00\xff\xff\xff\xff" + bytes(40)
    (page,) = read(saved(documents.image(), "JPEG", exif=exif))
    assert page.image.shape == picture().shape


def test_an_interlaced_png_that_is_all_black_is_whole() -> None:
    whole = saved(Image.new("L", (9, 9)), "PNG")
    assert (read(whole)[0].image == BLACK).all()
    assert difference(read(documents.interlaced_black(9, 9))[0].image, np.zeros((9, 9, 3), np.uint8)) == 0


@pytest.mark.parametrize("field", ["pages", "image_pixels", "open_cpu_s", "decode_cpu_s"])
def test_a_limit_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        DocumentLimits(**{field: 0})


def test_a_limit_above_that_of_the_library_is_refused() -> None:
    with pytest.raises(ValueError, match="178956970"):
        DocumentLimits(image_pixels=200_000_000)


def test_documents_beside_each_other_do_not_mix() -> None:
    names = ["png", "tiff-3-pages", "pdf-2-pages", "jpeg-cmyk-adobe"]
    opened = [open_document(DOCUMENTS[name](), LIMITS) for name in names]
    for first, second in itertools.permutations(opened, 2):
        assert difference(first.page(0).image, second.page(0).image) < CONVERSION_ERROR
    for document in opened:
        document.close()


def test_threads_that_render_pdfs_take_turns() -> None:
    found: list[bool] = []

    def render() -> None:
        opened = open_document(DOCUMENTS["pdf-2-pages"](), LIMITS)
        found.extend(difference(opened.page(index % 2).image, picture()) < CONVERSION_ERROR for index in range(6))
        opened.close()

    threads = [threading.Thread(target=render) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 24


def test_every_letter_is_in_the_font() -> None:
    missing = glyph("\ufffe")
    for letter in "äöüÄÖÜß€§–":
        assert not np.array_equal(glyph(letter), missing)


def glyph(letter: str) -> NDArray[np.uint8]:
    pixels = np.zeros((60, 60, 3), np.uint8)
    cv2.putText(pixels, letter, (10, 40), (255, 255, 255), cv2.FontFace("sans"), 30, 400)
    return pixels


def test_a_page_can_be_had_twice() -> None:
    opened = open_document(DOCUMENTS["tiff-3-pages"](), LIMITS)
    assert (opened.page(1).image == opened.page(1).image).all()
