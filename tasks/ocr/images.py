"""Image files as pages, by Pillow: the boundary at which its exceptions and warnings end.

Why it exists: Pillow opens whatever it knows, stops late at bombs, raises a dozen kinds of exceptions, and leaves most
of what makes a scan readable to its caller. Here one decoder is chosen by the first bytes, the header's claims are
held against the limits before a pixel is decoded, and whatever goes wrong is one `ItemFailed`. What becomes of the
decoded pixels is `flattening`'s business; what a TIFF's directories say, `formats`'.
"""

from __future__ import annotations

import io
import math
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from PIL import Image, TiffImagePlugin, WebPImagePlugin
from PIL.ExifTags import Base as Tag
from PIL.JpegImagePlugin import JpegImageFile

from schemas.errors import ErrorCode
from tasks.ocr.flattening import MODES, finish, reduction
from tasks.ocr.formats import Format, tiff_directories, tiff_of_page
from tasks.ocr.jpeg import ends_early, has_hole
from tasks.ocr.pages import Page, Source, Unit, check_index
from tasks.ocr.png import is_as_written, is_complete
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.ImageFile import ImageFile

    from tasks.ocr.limits import DocumentLimits

# It tells on the log about metadata that it skips; what matters raises, also under `python -W error`.
warnings.filterwarnings("ignore", module=r"PIL\.")
# Pillow finds these two only when they were imported: it loads all of its plugins just when none fits.
_ON_DEMAND: Final = (TiffImagePlugin.TiffImageFile, WebPImagePlugin.WebPImageFile)

_SIXTEEN_BIT: Final = "I;16"
_ONE_BYTE: Final = frozenset({"1", "L", "P"})
_START_OF_SCAN: Final = b"\xff\xda"
_MOST_SCANS: Final = 200  # an encoder makes about ten; each costs a pass over all blocks, however few bytes it has
_QUARTER_TURN: Final = 5  # EXIF orientations from here on swap the sides
_DRAFTS: Final = (8, 4, 2)
_BELIEVABLE_DPI: Final = (10, 10_000)


class ImageDocument:
    """A `Document` over an image file; a TIFF has a page for each directory, all others have one.

    Args:
        data: the file.
        form: what `sniff` says that it is.
        limits: for the document and each page.

    Raises:
        ItemFailed: `too_many_pages`, `empty_document` or `damaged_document`.
    """

    def __init__(self, data: bytes, form: Format, limits: DocumentLimits) -> None:
        self._data = data
        self._form = form
        self._limits = limits
        self._directories = tiff_directories(data, limits.pages) if form is Format.TIFF else [0]
        if self.pages > limits.pages:
            raise ItemFailed(ErrorCode.TOO_MANY_PAGES, f"the document has more than {limits.pages} pages")

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return len(self._directories)

    def page(self, index: int) -> Page:
        """Decode a page; see `Document`.

        Raises:
            ItemFailed: `no_such_page`, `image_too_large`, `unsupported_format` or `damaged_document`.
        """
        check_index(index, self.pages)
        data = self._data
        if self._form is Format.TIFF:
            data = tiff_of_page(data, self._directories[index])
        with _translated(), Image.open(io.BytesIO(data), formats=(self._form,)) as image:
            return self._decode(image, data, index)

    def close(self) -> None:
        """Do nothing: only the bytes are held, and they are the caller's."""

    def _decode(self, image: ImageFile, data: bytes, index: int) -> Page:
        self._check_size(image)
        dpi = _dpi(image)
        if self._form is Format.TIFF and _orientation(image) >= _QUARTER_TURN:  # Pillow turns a TIFF, but not its dpi
            dpi = dpi and dpi[::-1]
        width, height = image.size
        coefficient_bytes = _coefficient_bytes(image, data)
        self._draft(image)
        self._check_memory(image, coefficient_bytes)
        image.load()
        self._check_whole(image, data)
        orientation = _orientation(image)
        pixels = finish(image, dpi, orientation, (width, height), self._limits)
        if orientation >= _QUARTER_TURN:
            width, height, dpi = height, width, dpi and dpi[::-1]
        return Page(index, pixels, Source(width, height, Unit.PIXEL, dpi))

    def _check_size(self, image: ImageFile) -> None:
        """Hold the header's claims against the limits."""
        width, height = image.size
        if width * height > self._limits.image_pixels or max(width, height) > self._limits.image_side_px:
            raise _too_large(f"{width} × {height} pixels")
        if image.mode not in MODES:
            raise ItemFailed(ErrorCode.UNSUPPORTED_FORMAT, f"pixels of the kind {image.mode} are not read")

    def _draft(self, image: ImageFile) -> None:
        """Let a JPEG that will be scaled down anyway be decoded at a half, a quarter or an eighth."""
        if self._form is not Format.JPEG:
            return
        width, height = image.size
        factor = math.ceil(reduction(width, height, self._limits))
        scale = next((scale for scale in _DRAFTS if factor % scale == 0), None)
        if scale is not None:
            image.draft(None, (max(1, width // scale), max(1, height // scale)))

    def _check_memory(self, image: ImageFile, coefficient_bytes: int) -> None:
        needed_bytes = _pixel_bytes(image) + coefficient_bytes + _extra_bytes(image, self._form)
        if needed_bytes > self._limits.memory_bytes:
            raise _too_large(f"{needed_bytes >> 20} MiB to decode it")

    def _check_whole(self, image: ImageFile, data: bytes) -> None:
        """Refuse a picture that was decoded without a complaint although a part of it is gone."""
        is_whole = True
        if self._form is Format.PNG:
            is_whole = is_as_written(data) and (_has_last_row(image) or is_complete(data))
        elif self._form is Format.JPEG:
            is_whole = not (has_hole(data) or ends_early(image, data))
        if not is_whole:
            raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "a part of the image is missing")


def _has_last_row(image: Image.Image) -> bool:
    """Return whether anything is in the last row; a row that was not decoded is all zeros."""
    return any(image.crop((0, image.height - 1, image.width, image.height)).tobytes())


def _pixel_bytes(image: ImageFile) -> int:
    width, height = image.size
    sample_bytes = 1 if image.mode in _ONE_BYTE else 2 if image.mode.startswith(_SIXTEEN_BIT) else 4
    return width * height * sample_bytes


def _extra_bytes(image: ImageFile, form: Format) -> int:
    """Return what a decoder holds beside the decoded pixels."""
    pixel_bytes = _pixel_bytes(image)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        turned_bytes = pixel_bytes if _orientation(image) > 1 else 0
        return turned_bytes + _segment_bytes(image)
    if form is Format.WEBP:
        return 3 * pixel_bytes  # two canvases, and a copy as bytes
    return 2 * pixel_bytes if form is Format.BMP and image.tile[0].codec_name == "bmp_rle" else 0


def _segment_bytes(image: TiffImagePlugin.TiffImageFile) -> int:
    """Return the bytes of a TIFF's strip or tile, each of which is decoded whole."""
    width, height = image.size
    tags = image.tag_v2
    rows = min(int(tags.get(Tag.RowsPerStrip, height)), max(width, height))
    columns = max(width, height) if _orientation(image) >= _QUARTER_TURN else width
    if Tag.TileWidth in tags:
        columns, rows = int(tags[Tag.TileWidth]), int(tags.get(Tag.TileLength, height))
    bits = sum(map(int, tags.get(Tag.BitsPerSample, (1,))))
    return rows * columns * max(4, -(-bits // 8))


def _coefficient_bytes(image: ImageFile, data: bytes) -> int:
    """Return what a JPEG of several scans holds of the whole image: two bytes for each coefficient.

    Raises:
        ItemFailed: `damaged_document`: more scans than any encoder makes.
    """
    if not isinstance(image, JpegImageFile):
        return 0
    scans = data.count(_START_OF_SCAN)
    if scans > _MOST_SCANS:
        raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, f"the image has {scans} scans")
    if scans < 2 and "progressive" not in image.info:  # noqa: PLR2004 - one scan is decoded line by line
        return 0
    width, height = image.size
    widest = max(layer[1] for layer in image.layer) * max(layer[2] for layer in image.layer)
    blocks = sum(layer[1] * layer[2] for layer in image.layer)
    return 2 * width * height * blocks // max(widest, 1)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; upright if there is none, or none that can be read."""
    try:
        value = image.getexif().get(Tag.Orientation, 1)
    except Exception:  # noqa: BLE001 - metadata that nobody can read turns nothing; Pillow raises all sorts
        return 1
    return value if isinstance(value, int) and value in range(1, 9) else 1


def _dpi(image: Image.Image) -> tuple[float, float] | None:
    least, most = _BELIEVABLE_DPI
    try:
        across, down = (float(value) for value in image.info.get("dpi", ()))
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if least <= across <= most and least <= down <= most else None


def _too_large(what: str) -> ItemFailed:
    return ItemFailed(ErrorCode.IMAGE_TOO_LARGE, f"the image is over the limit: {what}")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn whatever Pillow raises on a bad file into an item's outcome; its text may quote the file and is dropped."""
    try:
        yield
    except ItemFailed:
        raise
    except Image.DecompressionBombError:
        raise _too_large("more pixels than any limit allows") from None
    except MemoryError:
        raise _too_large("more memory than there is") from None
    except Exception as error:  # noqa: BLE001 - an item's outcome: on a damaged file Pillow raises nearly any type
        text = f"the image is cut off or damaged ({type(error).__name__})"
        raise ItemFailed(ErrorCode.DAMAGED_DOCUMENT, text) from None
