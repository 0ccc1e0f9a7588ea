"""What a document may cost, decided from its headers before anything is decoded.

Why it exists: a file of some kilobytes can claim gigabytes of pixels. Every claim is held against one of these numbers
first, so that what a worker needs at most is known before it starts. It does not know any format.
"""

from dataclasses import dataclass, fields
from typing import Final

from schemas.errors import ErrorCode
from worker.errors import ItemFailed

MIB: Final = 1024 * 1024
# Pillow itself refuses above it; a higher limit would not be what it says.
_MOST_IMAGE_PIXELS: Final = 178_956_970


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """What one document and each of its pages may cost.

    Attributes:
        document_bytes: of the file; above it `document_too_large`.
        inline_bytes: the same for a file inside a message, which is held in the database too.
        pages: of the document; above it `too_many_pages`.
        image_pixels: of an image file, as its header claims; above it `image_too_large`.
        image_side_px: the same for its longer side.
        memory_bytes: what decoding one page may hold beside the file and the finished page, by what the headers
            claim; above it `image_too_large`.
        page_pixels: of a finished page; a larger one is scaled down by a whole number.
        page_side_px: the same for its longer side.
        pdf_dpi: at which a PDF's page is rendered, unless that exceeds one of the next two.
        pdf_pixels: of a rendered PDF page; a larger one is rendered at a lower resolution.
        pdf_side_px: the same for its longer side.
        process_bytes: private memory of the process that decodes; the kernel holds it to that.
        open_cpu_s: CPU seconds for opening a document; above it `decode_timeout`. All that are opened at a time may
            have to wait for each other; their lane has time for that.
        decode_cpu_s: CPU seconds for each page; above it `decode_timeout`.

    Raises:
        ValueError: a limit is not above 0, or more than can be promised.
    """

    document_bytes: int = 50 * MIB
    inline_bytes: int = 8 * MIB
    pages: int = 500
    image_pixels: int = 150_000_000
    image_side_px: int = 100_000
    memory_bytes: int = 768 * MIB
    page_pixels: int = 40_000_000
    page_side_px: int = 32_000
    pdf_dpi: int = 200
    pdf_pixels: int = 25_000_000
    pdf_side_px: int = 8_000
    process_bytes: int = 1400 * MIB
    open_cpu_s: float = 5.0
    decode_cpu_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be more than 0")
        if self.image_pixels > _MOST_IMAGE_PIXELS:
            raise ValueError(f"image_pixels must be at most {_MOST_IMAGE_PIXELS}: the image library takes no more")


def check_bytes(size_bytes: int, limits: DocumentLimits) -> None:
    """Refuse a document by its length.

    Raises:
        ItemFailed: `document_too_large`.
    """
    if size_bytes > limits.document_bytes:
        text = f"the document has {size_bytes} bytes, and {limits.document_bytes} are allowed"
        raise ItemFailed(ErrorCode.DOCUMENT_TOO_LARGE, text)
