"""One way to open any document.

It decodes in the process that calls it: see `decoder` for what a stranger's file may do there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.ocr.formats import Format, sniff
from tasks.ocr.images import ImageDocument
from tasks.ocr.limits import check_bytes
from tasks.ocr.pdf import PdfDocument

if TYPE_CHECKING:
    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.pages import Document


def open_document(data: bytes, limits: DocumentLimits) -> Document:
    """Open a document; no page is decoded yet. The caller closes it.

    Args:
        data: the file; its first bytes say what it is.
        limits: for the document and each page.

    Raises:
        ItemFailed: `document_too_large`, `empty_document`, `unsupported_format`, `encrypted_document`,
            `too_many_pages` or `damaged_document`.
    """
    check_bytes(len(data), limits)
    form = sniff(data)
    return PdfDocument(data, limits) if form is Format.PDF else ImageDocument(data, form, limits)
