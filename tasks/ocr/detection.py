"""Where text stands on a page: from a page to the network's input, and from its output to boxes.

Why it exists: the network (PP-OCR's differentiable binarisation, Apache-2.0) wants sides that are multiples of 32, and
gives a map of how likely a pixel is inside a line, a little shrunk. Two steps that know no model and no thread stand
around it: `tiles` and `network_input` before, `merged` and `boxes` after. A page is one tile, unless it is so long that
shrinking it would make its text unreadable: then the tiles overlap, and their maps are merged before boxes are looked
for, so that a line across a seam stays one line.

The constants are those of RapidOCR 3.10, on which the quality was measured. What differs: a box grows by moving its
sides outwards, where RapidOCR rounds the corners with pyclipper and takes the rectangle around that, which is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.ocr.profiles import SideLimits

STRIDE: Final = 32  # pixels; the network halves a side five times

_MAP_THRESHOLD: Final = 0.3
_BOX_THRESHOLD: Final = 0.5
_UNCLIP: Final = 1.6
_SMALLEST_REGION: Final = 3.0  # pixels of the map
_SMALLEST_BOX: Final = 5.0  # pixels of the map, once grown
_SMALLEST_SIDE: Final = 3  # pixels of the page
_MOST_REGIONS: Final = 3000
_DILATION: Final = np.ones((2, 2), np.uint8)

_LONG_PAGE: Final = 4  # times as long as wide: from here on a page is cut into tiles
_LEAST_SIDE_OF_LONG: Final = 96  # pixels; a narrow strip is enlarged to this and no further
_OVERLAP: Final = 128  # pixels between two tiles
_MOST_TILES: Final = 12

Image = NDArray[np.uint8]
Map = NDArray[np.float32]
Points = NDArray[Any]  # Any: OpenCV promises nothing about what it returns


class Tile(NamedTuple):
    """A part of the resized page, in its pixels; all four are multiples of 32."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How the network sees a page.

    Attributes:
        height: of the resized page, a multiple of 32.
        width: likewise.
        tiles: what the network is given, one by one.
    """

    height: int
    width: int
    tiles: tuple[Tile, ...]


class Box(NamedTuple):
    """Where a line stands.

    Attributes:
        corners: float32[4, 2], x and y in pixels of the page: top left, top right, bottom right, bottom left.
        score: how sure the network is that this is text, 0 to 1.
    """

    corners: NDArray[np.float32]
    score: float


def plan(height: int, width: int, limits: SideLimits) -> Plan:
    """Say to what a page of this size is resized and how it is cut; sides in pixels, at least 1."""
    short, long = min(height, width), max(height, width)
    if long <= _LONG_PAGE * short:
        scale = max(1.0, limits.least / short)
        scale = min(scale, limits.most / long)
        high, wide = _rounded(height * scale), _rounded(width * scale)
        return Plan(high, wide, (Tile(0, 0, high, wide),))
    scale = _scale_of_long(short, long, limits)
    high, wide = _rounded(height * scale), _rounded(width * scale)
    starts = _starts(max(high, wide), limits.most // STRIDE * STRIDE)
    side = min(max(high, wide), limits.most // STRIDE * STRIDE)
    if high > wide:
        return Plan(high, wide, tuple(Tile(start, 0, side, wide) for start in starts))
    return Plan(high, wide, tuple(Tile(0, start, high, side) for start in starts))


def looked_at(height: int, width: int, limits: SideLimits) -> int:
    """Return how many pixels the network reads of a page of this size: what a look at it costs."""
    return sum(tile.height * tile.width for tile in plan(height, width, limits).tiles)


def resized(image: Image, planned: Plan) -> Image:
    """Resize a page, uint8[height, width, 3], as planned; x and y are scaled apart."""
    if image.shape[:2] == (planned.height, planned.width):
        return image
    return np.asarray(cv2.resize(image, (planned.width, planned.height)), np.uint8)


def network_input(page: Image, tile: Tile) -> NDArray[np.float32]:
    """Return what the network reads of a tile of a resized page: float32[1, 3, height, width], BGR, -1 to 1."""
    part = page[tile.top : tile.top + tile.height, tile.left : tile.left + tile.width]
    values = np.empty((1, 3, tile.height, tile.width), np.float32)
    for plane, channel in zip(values[0], cv2.split(part), strict=True):  # twice as fast as numpy on all three
        np.multiply(channel, np.float32(1 / 127.5), out=plane)
    values -= 1
    return values


def merged(planned: Plan, maps: Sequence[Map]) -> Map:
    """Put the maps of all tiles together: float32[height, width].

    Args:
        planned: the plan.
        maps: what the network gave for each tile, float32[height, width], in the plan's order. Where tiles overlap,
            the larger value counts: a tile's edge sees half a letter and doubts it.
    """
    if len(maps) == 1:
        return maps[0]
    whole = np.zeros((planned.height, planned.width), np.float32)
    for tile, values in zip(planned.tiles, maps, strict=True):
        part = whole[tile.top : tile.top + tile.height, tile.left : tile.left + tile.width]
        np.maximum(part, values, out=part)
    return whole


def boxes(likely: Map, height: int, width: int) -> list[Box]:
    """Find the lines in a map, in no meaningful order.

    Args:
        likely: float32[map height, map width], how likely a pixel is text.
        height: of the page, in pixels.
        width: likewise.
    """
    mask = cv2.dilate((likely > _MAP_THRESHOLD).astype(np.uint8), _DILATION)
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale = np.array([width / likely.shape[1], height / likely.shape[0]], np.float32)
    found = (_box(likely, contour, scale, (height, width)) for contour in contours[:_MOST_REGIONS])
    return [box for box in found if box is not None]


def _box(likely: Map, contour: Points, scale: NDArray[np.float32], page: tuple[int, int]) -> Box | None:
    (centre, (across, along), angle) = cv2.minAreaRect(contour)
    if min(across, along) < _SMALLEST_REGION:
        return None
    score = _score(likely, cv2.boxPoints((centre, (across, along), angle)))
    if score < _BOX_THRESHOLD:
        return None
    grown = 2 * (across * along * _UNCLIP / (2 * (across + along)))
    if min(across, along) + grown < _SMALLEST_BOX:
        return None
    points = np.round(cv2.boxPoints((centre, (across + grown, along + grown), angle)) * scale)
    corners = _clockwise(np.clip(points, 0, [page[1] - 1, page[0] - 1]).astype(np.float32))
    if min(np.linalg.norm(corners[0] - corners[1]), np.linalg.norm(corners[0] - corners[3])) <= _SMALLEST_SIDE:
        return None
    return Box(corners, score)


def _score(likely: Map, points: Points) -> float:
    """Return the mean of the map inside a rectangle."""
    edge = np.array(likely.shape[::-1]) - 1
    left, top = np.clip(np.floor(points.min(axis=0)).astype(int), 0, edge)
    right, bottom = np.clip(np.ceil(points.max(axis=0)).astype(int), 0, edge)
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(inside, [(points - [left, top]).astype(np.int32)], 1)
    return float(cv2.mean(likely[top : bottom + 1, left : right + 1], inside)[0])


def _clockwise(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Order four corners: top left, top right, bottom right, bottom left."""
    by_x = points[np.argsort(points[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.stack([left[0], right[0], right[1], left[1]])


def _scale_of_long(short: int, long: int, limits: SideLimits) -> float:
    """Return by how much a long page is scaled: a narrow one up to be read, a vast one down to few tiles."""
    scale = max(1.0, _LEAST_SIDE_OF_LONG / short)
    most_long = limits.most + (_MOST_TILES - 1) * (limits.most - _OVERLAP)
    return min(scale, limits.most / short, most_long / long)


def _starts(long: int, side: int) -> list[int]:
    """Return where tiles of length `side` start so that they cover `long` and overlap; the last one ends with it."""
    if long <= side:
        return [0]
    return [*range(0, long - side, side - _OVERLAP), long - side]


def _rounded(side: float) -> int:
    return max(1, round(side / STRIDE)) * STRIDE
