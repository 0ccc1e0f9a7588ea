"""A line cut out of its page and made ready for the recognition network: upright, 48 pixels high, padded to a bucket.

Why it exists: on a CPU padding is what a recogniser wastes most on, and a text must not depend on what it is batched
with. So a crop's padded width is its own width rounded up to 32 pixels, whatever lies beside it, and only crops of
equal width share a batch. A crop that is higher than wide is text that runs up or down the page, or a single letter:
it is read in three ways, and the surest reading counts. It knows neither sessions nor characters.
"""

from typing import Final, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

HEIGHT: Final = 48  # pixels; what the network was made for
BUCKET: Final = 32  # pixels
MAX_WIDTH: Final = 3_200  # pixels; the longest line that the network was made for

_UPRIGHT_TO_WIDE: Final = 1.5  # height over width from which on a crop is turned
_MOST_WARPED: Final = 32_000  # pixels a side
_MOST_PARTS: Final = 4
_LEAST_WIDTH: Final = 8  # pixels; the network halves a width three times

Image = NDArray[np.uint8]


class Crop(NamedTuple):
    """One strip for the network.

    Attributes:
        pixels: uint8[48, width, 3], BGR, at most 3,200 wide.
        line: to which line it belongs.
        reading: in which way the line is read here; of several the surest counts.
        part: which part of that reading it is, from 0.
    """

    pixels: Image
    line: int
    reading: int
    part: int

    @property
    def padded_width(self) -> int:
        """Pixels with the padding: depends on this crop alone."""
        return padded_width(self.pixels.shape[1])

    @property
    def padding(self) -> int:
        """Pixels of that which are padding."""
        return self.padded_width - int(self.pixels.shape[1])


def padded_width(width: int) -> int:
    """Return a width rounded up to its bucket, in pixels."""
    return -(-width // BUCKET) * BUCKET


def crops(page: Image, corners: NDArray[np.float32], line: int) -> list[Crop]:
    """Cut a line out of a page, in every way in which it must be read.

    Args:
        page: uint8[height, width, 3].
        corners: float32[4, 2], x and y: top left, top right, bottom right, bottom left.
        line: what `Crop.line` says.
    """
    cut = straightened(page, corners)
    readings = [cut]
    if cut.shape[0] >= _UPRIGHT_TO_WIDE * cut.shape[1]:
        readings = [np.rot90(cut), np.rot90(cut, -1), cut]
    return [
        Crop(part, line, reading, number)
        for reading, image in enumerate(readings)
        for number, part in enumerate(parts(to_height(image)))
    ]


def straightened(page: Image, corners: NDArray[np.float32]) -> Image:
    """Return the quadrilateral as a rectangle of its own size, at least one pixel each way."""
    top_left, top_right, bottom_right, bottom_left = corners
    width = max(1, int(max(np.linalg.norm(top_left - top_right), np.linalg.norm(bottom_right - bottom_left))))
    height = max(1, int(max(np.linalg.norm(top_left - bottom_left), np.linalg.norm(top_right - bottom_right))))
    if max(width, height) > _MOST_WARPED:
        return _straightened_smaller(page, corners, max(width, height))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    left, top = np.maximum(np.floor(corners.min(axis=0)).astype(int) - 2, 0)
    right, bottom = np.ceil(corners.max(axis=0)).astype(int) + 3
    around = page[top:bottom, left:right]
    matrix = cv2.getPerspectiveTransform((corners - [left, top]).astype(np.float32), target)
    flat = cv2.warpPerspective(around, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(flat, np.uint8)


def _straightened_smaller(page: Image, corners: NDArray[np.float32], longest: int) -> Image:
    """Do it with a smaller page: OpenCV warps no picture of 32,768 pixels or more."""
    scale = _MOST_WARPED / 2 / longest
    height, width = page.shape[:2]
    small = cv2.resize(page, (max(1, round(width * scale)), max(1, round(height * scale))))
    factors = np.array([small.shape[1] / width, small.shape[0] / height], np.float32)
    return straightened(np.asarray(small, np.uint8), corners * factors)


def to_height(image: Image) -> Image:
    """Resize to a height of 48 pixels, the width in proportion: uint8[48, width, 3], at most 12,800 wide.

    What is longer for its height is a ruled line, not a written one, and must not cost what a page costs.
    """
    height, width = image.shape[:2]
    wide = min(max(_LEAST_WIDTH, -(-HEIGHT * width // height)), _MOST_PARTS * MAX_WIDTH)
    return np.asarray(cv2.resize(np.ascontiguousarray(image), (wide, HEIGHT)), np.uint8)


def parts(strip: Image) -> list[Image]:
    """Cut a strip that is wider than 3,200 pixels where it is most likely blank: a gap between two words."""
    found = []
    while strip.shape[1] > MAX_WIDTH:
        cut = _gap(strip)
        found.append(strip[:, :cut])
        strip = strip[:, cut:]
    return [*found, strip]


def network_input(batch: list[Crop]) -> NDArray[np.float32]:
    """Return what the network reads of crops with equal padded widths: float32[batch, 3, 48, width], BGR, -1 to 1.

    The padding is 0 after normalising, which is grey.
    """
    values = np.zeros((len(batch), 3, HEIGHT, batch[0].padded_width), np.float32)
    for row, crop in zip(values, batch, strict=True):
        part = row[:, :, : crop.pixels.shape[1]]
        np.multiply(crop.pixels.transpose(2, 0, 1), np.float32(1 / 127.5), out=part)
        part -= 1
    return values


def _gap(strip: Image) -> int:
    """Return the column in the second half of the first 3,200 around which least changes over a letter's width."""
    grey = strip[:, :MAX_WIDTH].mean(axis=2)
    change = np.convolve(grey.std(axis=0), np.ones(HEIGHT // 2), mode="same")
    return MAX_WIDTH // 2 + int(change[MAX_WIDTH // 2 : MAX_WIDTH - HEIGHT // 4].argmin())
