"""PDFs as pages, by PDFium.

Why it exists: a PDF's page has no pixels of its own, so it is rendered at a resolution that is bounded by the page's
size. PDFium shares state between all documents of a process and is not safe to call from two threads: every call
here is made under one lock, so threads take turns, and only processes render side by side. Nor can a call be ended:
a page whose forms contain each other ten times over, six deep, takes minutes and gigabytes before PDFium returns.
Whoever opens a stranger's PDF does so in the process that `decoder` guards.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import pypdfium2
from pypdfium2 import PdfiumError, raw

from schemas.errors import ErrorCode
from tasks.ocr.pages import Page, Source, Unit, check_index
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.pages import Pixels

_LOCK: Final = threading.RLock()
_POINTS_PER_INCH: Final = 72
_ENCRYPTED: Final = frozenset({raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY})
_MOST_POINTS: Final = 1e7  # a side of 3.5 km; PDFium reads nonsense as numbers up to infinity

_JPEG_2000: Final = "JPXDecode"
_CODESTREAM: Final = b"\xff\x4f\xff\x51"
# What PDFium takes for each sample of a JPEG 2000: an int32 of it, the same again converted, and its bytes.
_JPEG_2000_BYTES: Final = 7
_FORM_LEVELS: Final = 30  # PDFium itself stops there


class PdfDocument:
    """A `Document` over a PDF.

    Args:
        data: the file; kept until it is closed.
        limits: for the document and each page.

    Raises:
        ItemFailed: `encrypted_document`, `damaged_document`, `empty_document` or `too_many_pages`.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._limits = limits
        self._data = data  # PDFium reads from it as long as the document is open
        with _pdfium():
            self._document = pypdfium2.PdfDocument(_loaded(data))
            self._pages = len(self._document)
        if self._pages < 1:
            self._refuse(ErrorCode.EMPTY_DOCUMENT, "the document has no pages")
        if self._pages > limits.pages:
            self._refuse(ErrorCode.TOO_MANY_PAGES, f"the document has more than {limits.pages} pages")
        with _pdfium():
            self._document.init_forms()  # else what was filled in is not drawn

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return self._pages

    def page(self, index: int) -> Page:
        """Render a page; see `Document`. Waits while another thread renders.

        Raises:
            ItemFailed: `no_such_page`, `image_too_large` or `damaged_document`.
        """
        check_index(index, self._pages)
        with _pdfium():
            page = self._document[index]
            try:
                _check_images(page, self._limits.memory_bytes)
                width, height = _size(page)
                pixels = _rendered(page, self._scale(width, height))
            finally:
                page.close()
        dpi = float(_POINTS_PER_INCH)
        return Page(index, pixels, Source(width, height, Unit.POINT, (dpi, dpi)))

    def close(self) -> None:
        """Give the document back to PDFium."""
        with _LOCK:
            self._document.close()

    def _refuse(self, code: ErrorCode, text: str) -> None:
        self.close()
        raise ItemFailed(code, text)

    def _scale(self, width: float, height: float) -> float:
        """Return pixels per point: what `pdf_dpi` says, or less so that the page stays within its bounds."""
        limits = self._limits
        by_area = math.sqrt(limits.pdf_pixels / (width * height))
        return min(limits.pdf_dpi / _POINTS_PER_INCH, by_area, limits.pdf_side_px / max(width, height))


def _loaded(data: bytes) -> raw.FPDF_DOCUMENT:
    """Return PDFium's handle.

    pypdfium2 would take a document without pages for one that failed to load, and give it the last failure's reason.
    """
    handle = raw.FPDF_LoadMemDocument64(data, len(data), None)
    if not handle:
        if raw.FPDF_GetLastError() in _ENCRYPTED:
            raise ItemFailed(ErrorCode.ENCRYPTED_DOCUMENT, "the document opens only with a key")
        raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "the PDF is cut off or damaged")
    return handle


def _size(page: pypdfium2.PdfPage) -> tuple[float, float]:
    """Return the page's width and height as seen, in points."""
    width, height = page.get_size()
    if not (0 < width <= _MOST_POINTS and 0 < height <= _MOST_POINTS):
        raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "the page has no size")
    return width, height


def _rendered(page: pypdfium2.PdfPage, scale: float) -> Pixels:
    bitmap = page.render(scale=scale)
    try:
        pixels: Pixels = bitmap.to_numpy()[..., :3]  # a page with transparency comes with a fourth, unused byte
        return np.array(pixels, np.uint8, order="C")
    finally:
        bitmap.close()


def _check_images(page: pypdfium2.PdfPage, most_bytes: int) -> None:
    """Refuse a page with a JPEG 2000 whose own header claims too much; PDFium decodes all others line by line."""
    for image in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=_FORM_LEVELS):
        if _JPEG_2000 in image.get_filters():
            needed_bytes = _samples(bytes(image.get_data())) * _JPEG_2000_BYTES
            if needed_bytes > most_bytes:
                raise ItemFailed(
                    ErrorCode.IMAGE_TOO_LARGE, f"an image on the page takes {needed_bytes >> 20} MiB to decode"
                )


def _samples(data: bytes) -> int:
    """Return width × height × channels as a JPEG 2000 claims them; 0 if it claims nothing, and is not decoded then."""
    at = data.find(_CODESTREAM)
    if at < 0 or len(data) < at + 42:
        return 0
    right, bottom, left, top = (int.from_bytes(data[at + 8 + 4 * n : at + 12 + 4 * n]) for n in range(4))
    return max(0, right - left) * max(0, bottom - top) * int.from_bytes(data[at + 40 : at + 42])


@contextmanager
def _pdfium() -> Iterator[None]:
    """Hold the lock, and turn what PDFium cannot do into an item's outcome."""
    with _LOCK:
        try:
            yield
        except PdfiumError:
            raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "the PDF or the page is cut off or damaged") from None
        except ItemFailed:
            raise
        except MemoryError:
            raise ItemFailed(ErrorCode.IMAGE_TOO_LARGE, "the page takes more memory than there is") from None
        except Exception as error:  # noqa: BLE001 - an item's outcome: its Python side trips over odd answers
            text = f"the PDF or the page is damaged ({type(error).__name__})"
            raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, text) from None
