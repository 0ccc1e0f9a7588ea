"""From decoded pixels of any kind to the picture that is read: BGR, upright, square pixels, of bounded size.

Why it exists: 140 megapixels are decoded into a byte or four each, and every further copy of the whole would double
that. So they are taken in strips: each is made opaque, turned into BGR and averaged down before the next is touched.
What is transparent gets the background on which the visible stands out: black under light text, white under dark.
It opens no file, and what it is given has passed the limits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np
from PIL import Image, ImageChops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.pages import Pixels

_SIXTEEN_BIT: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_GRAY: Final = frozenset({"1", "L"})
_WITH_ALPHA: Final = frozenset({"LA", "PA", "RGBA", "RGBa"})
_KEYED: Final = frozenset({"1", "L", "P", "RGB"})  # one colour, or a palette's entries, may be transparent
MODES: Final = _SIXTEEN_BIT | _GRAY | _WITH_ALPHA | _KEYED | {"RGBX", "CMYK", "YCbCr"}

_STRIP_PIXELS: Final = 4_000_000
_ROUNDED: Final = 0.1  # a decoder that halves an odd side rounds up
_OPAQUE: Final = 255
_WHITE: Final = 255
_BLACK: Final = 0
_MIDDLE_GRAY: Final = 127.5
# Below, pixels are as good as square (fax at 204 × 196 dpi); above, the file's resolution is no resolution.
_OBLONG: Final = (1.1, 4.0)

# EXIF's orientations: which of them swap the sides, and how rows and columns are walked through after that.
_TRANSPOSED: Final = range(5, 9)
_STEPS: Final = {1: (1, 1), 2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}

cv2.setNumThreads(1)  # a worker counts its threads; see `worker.settings`


def finish(
    image: Image.Image,
    dpi: tuple[float, float] | None,
    orientation: int,
    stored_size: tuple[int, int],
    limits: DocumentLimits,
) -> Pixels:
    """Return the picture, `uint8[height, width, 3]`, BGR, contiguous.

    Args:
        image: decoded, of one of `MODES`.
        dpi: across and down, as stored; None if unknown.
        orientation: 1 to 8 as in EXIF: how the stored pixels must be turned.
        stored_size: width and height before the decoder scaled down, if it did.
        limits: `page_pixels` and `page_side_px` bound the result.
    """
    across, down = _stretch(dpi)
    width, height = stored_size[0] * across, stored_size[1] * down
    factor = math.ceil(math.ceil(reduction(width, height, limits)) * image.width / stored_size[0] - _ROUNDED)
    pixels = _averaged(image, max(1, factor))
    if (across, down) != (1.0, 1.0):
        size = (max(1, round(pixels.shape[1] * across)), max(1, round(pixels.shape[0] * down)))
        pixels = _array(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC))
    return np.ascontiguousarray(_turned(pixels, orientation))


def reduction(width: float, height: float, limits: DocumentLimits) -> float:
    """Return by how much both sides must be divided for the page to stay within its bounds; at least 1."""
    return max(1.0, math.sqrt(width * height / limits.page_pixels), max(width, height) / limits.page_side_px)


def _stretch(dpi: tuple[float, float] | None) -> tuple[float, float]:
    """Return how much longer each side gets, so that pixels are square: the coarser one grows to the finer."""
    if dpi is None:
        return 1.0, 1.0
    finest = max(dpi)
    least, most = _OBLONG
    if not least <= finest / min(dpi) <= most:
        return 1.0, 1.0
    return finest / dpi[0], finest / dpi[1]


def _averaged(image: Image.Image, factor: int) -> Pixels:
    """Return the image in BGR, each `factor × factor` pixels averaged into one."""
    background = _background(image)
    # Pillow takes every CMYK JPEG for Adobe's, which are inverted; the mark tells whether it is.
    is_negative = image.format == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info
    width, height = -(-image.width // factor), -(-image.height // factor)
    pixels = np.empty((height, width, 3), np.uint8)
    for top, strip in _strips(image, factor):
        rows = _bgr(ImageChops.invert(strip) if is_negative else strip, background)
        first = top // factor
        last = min(height, first + -(-rows.shape[0] // factor))
        if factor > 1:
            rows = _array(cv2.resize(rows, (width, last - first), interpolation=cv2.INTER_AREA))
        pixels[first:last] = rows
    return pixels


def _strips(image: Image.Image, factor: int) -> Iterator[tuple[int, Image.Image]]:
    """Yield the image in strips from the top, each with where it starts: a multiple of `factor`."""
    rows = max(1, _STRIP_PIXELS // (image.width * factor)) * factor
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _bgr(strip: Image.Image, background: int | None) -> Pixels:
    if strip.mode in _SIXTEEN_BIT:
        high_bytes: Pixels = (np.asarray(strip) >> 8).astype(np.uint8)
        return _array(cv2.cvtColor(high_bytes, cv2.COLOR_GRAY2BGR))
    if background is not None:
        return _over(np.asarray(strip.convert("RGBA")), background)
    if strip.mode in _GRAY:
        return _array(cv2.cvtColor(np.asarray(strip.convert("L")), cv2.COLOR_GRAY2BGR))
    return _array(cv2.cvtColor(np.asarray(strip.convert("RGB")), cv2.COLOR_RGB2BGR))


def _over(rgba: Pixels, background: int) -> Pixels:
    alpha = rgba[..., 3:].astype(np.uint16)
    blended = rgba[..., 2::-1] * alpha + background * (_OPAQUE - alpha) + _OPAQUE // 2
    return (blended // _OPAQUE).astype(np.uint8)


def _background(image: Image.Image) -> int | None:
    """Return the gray to put under what is transparent; None if nothing is.

    It is white unless what is visible, weighted by how visible it is, is lighter than middle gray.
    """
    if not (image.mode in _WITH_ALPHA or (image.mode in _KEYED and "transparency" in image.info)):
        return None
    light, weight, is_opaque = 0, 0, True
    for _, strip in _strips(image, 1):
        rgba = strip.convert("RGBA")
        alpha = np.asarray(rgba.getchannel("A")).astype(np.uint32)
        is_opaque = is_opaque and bool(alpha.min() == _OPAQUE)
        light += int((np.asarray(rgba.convert("L")) * alpha).sum(dtype=np.uint64))
        weight += int(alpha.sum(dtype=np.uint64))
    if is_opaque:
        return None
    return _BLACK if weight and light / weight > _MIDDLE_GRAY else _WHITE


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    """Return the pixels as EXIF's orientation says that they are to be seen."""
    if orientation in _TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    down, across = _STEPS[orientation]
    return pixels[::down, ::across]


def _array(pixels: NDArray[np.generic]) -> Pixels:
    """Return what OpenCV gave: of the same type as what it got, which its annotations cannot say."""
    return pixels.astype(np.uint8, copy=False)
