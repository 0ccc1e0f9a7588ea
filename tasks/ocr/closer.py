"""Where to look a second time: around the ink of a page on which hardly any text was found.

Why it exists: the detection network weighs a picture as a whole, and a short line alone on an empty page does not stand
out to it. "Seite 2 von 2" on an empty A4 page is missed at every resolution, the title of a plan of 140 megapixels
likewise; in a part of the page, at the page's own scale, the same network finds both. Pages with more text than that
are left as they are, and cost nothing. It knows no network: who calls it looks at the parts as at pages.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.ocr.detection import Box, looked_at
from tasks.ocr.profiles import SideLimits

_LITTLE_TEXT: Final = 0.01  # of the page's area; a page with ten lines has five times that
_UNIFORM: Final = 8  # levels of 255 between the darkest and the lightest pixel of an empty page

# Ink is looked for on a page shrunk to this, by its contrast to what is beside it.
_LONG_SIDE: Final = 1_000  # pixels
_CONTRAST: Final = 32  # levels
_REACH: Final = 25  # pixels between words and lines that are looked at together
_SPECK: Final = 6  # pixels
_MOST_PARTS: Final = 6
_LARGEST_PART: Final = 0.5  # of the page's area; in more of it there is nothing new to be seen
_MOST_LOOKS: Final = 3  # what all parts together may cost, in looks at the whole page; or as many small parts

Image = NDArray[np.uint8]


class Part(NamedTuple):
    """A part of a page, in its pixels.

    Attributes:
        left, top, right, bottom: of what is looked at.
        ink: the same four of what it is looked at for: whatever else is in it may be cut off at its edge.
    """

    left: int
    top: int
    right: int
    bottom: int
    ink: tuple[int, int, int, int]

    def of(self, page: Image) -> Image:
        """Return the part of a page."""
        return page[self.top : self.bottom, self.left : self.right]


def is_empty(page: Image) -> bool:
    """Return whether nothing at all stands on a page, uint8[height, width, 3]."""
    darkest, lightest, _, _ = cv2.minMaxLoc(page.reshape(page.shape[0], -1))
    return lightest - darkest < _UNIFORM


def parts(page: Image, found: Sequence[Box], limits: SideLimits) -> list[Part]:
    """Return what is to be looked at again, none on a page with text enough.

    Args:
        page: upright, uint8[height, width, 3].
        found: the lines that are known.
        limits: to what a page or a part is resized; a part's sides are at least so long, where the page is as large.
    """
    height, width = page.shape[:2]
    if sum(map(_area, found)) >= _LITTLE_TEXT * height * width:
        return []
    scale = min(1.0, _LONG_SIDE / max(height, width))
    blots = _blots(page, scale, found)
    around = [_part(blot, scale, (height, width), limits.least) for blot in blots]
    most = _LARGEST_PART * height * width
    apart = [part for part in around if (part.right - part.left) * (part.bottom - part.top) <= most]
    pixels = max(_MOST_LOOKS * looked_at(height, width, limits), _MOST_PARTS * limits.least**2)
    return _affordable(apart, pixels, limits)


def _affordable(wanted: Sequence[Part], pixels: int, limits: SideLimits) -> list[Part]:
    """Return the first few parts that the network can look at for so many of its pixels; one too dear is left out."""
    found: list[Part] = []
    for part in wanted:
        cost = looked_at(part.bottom - part.top, part.right - part.left, limits)
        if cost <= pixels and len(found) < _MOST_PARTS:
            found.append(part)
            pixels -= cost
    return found


def added(found: Sequence[Box], seen: Sequence[Box], part: Part, page: tuple[int, int]) -> list[Box]:
    """Return the known lines and those seen whole in a part, now in pixels of the page; each line once.

    Args:
        found: the lines that are known.
        seen: those of the part, in its pixels.
        part: where that is.
        page: height and width.
    """
    moved = [box._replace(corners=box.corners + np.array([part.left, part.top], np.float32)) for box in seen]
    left, top, right, bottom = part.ink
    new = []
    for box in moved:
        x, y = (float(at) for at in box.corners.mean(axis=0))
        is_known = any(cv2.pointPolygonTest(known.corners, (x, y), measureDist=False) >= 0 for known in found)
        if left <= x < right and top <= y < bottom and not is_known and not _is_cut(box, part, page):
            new.append(box)
    return [*found, *new]


def _is_cut(box: Box, part: Part, page: tuple[int, int]) -> bool:
    """Return whether a line reaches a side of its part beyond which the page goes on."""
    left, top = box.corners.min(axis=0)
    right, bottom = box.corners.max(axis=0)
    height, width = page
    return bool(
        (part.left > 0 and left <= part.left)
        or (part.top > 0 and top <= part.top)
        or (part.right < width and right >= part.right - 1)
        or (part.bottom < height and bottom >= part.bottom - 1)
    )


def _area(box: Box) -> float:
    top_left, top_right, _, bottom_left = box.corners
    return float(np.linalg.norm(top_left - top_right) * np.linalg.norm(top_left - bottom_left))


def _blots(page: Image, scale: float, found: Sequence[Box]) -> list[tuple[int, int, int, int]]:
    """Return where ink is that no line explains, the largest first: left, top, right and bottom on the shrunk page."""
    height, width = page.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    grey = cv2.cvtColor(cv2.resize(page, size, interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY)
    edges = cv2.morphologyEx(grey, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))
    ink = (edges > _CONTRAST).astype(np.uint8)
    for box in found:
        cv2.fillPoly(ink, [np.round(box.corners * scale).astype(np.int32)], (0,))
    joined = cv2.dilate(ink, np.ones((_REACH, _REACH), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(joined)
    blots = [(x, y, x + wide, y + high) for x, y, wide, high, _ in stats[1:].tolist()]
    return sorted(
        (blot for blot in blots if max(blot[2] - blot[0], blot[3] - blot[1]) >= _REACH + _SPECK),
        key=lambda blot: (blot[0] - blot[2]) * (blot[3] - blot[1]),
    )


def _part(blot: tuple[int, int, int, int], scale: float, page: tuple[int, int], least: int) -> Part:
    left, top, right, bottom = (int(at / scale) for at in blot)
    height, width = page
    from_x, to_x = _grown(left, right, width, least)
    from_y, to_y = _grown(top, bottom, height, least)
    return Part(from_x, from_y, to_x, to_y, (left, top, right, bottom))


def _grown(start: int, end: int, most: int, least: int) -> tuple[int, int]:
    """Return a stretch within 0 and `most` that holds the given one in its middle and is as long as `least`."""
    length = min(max(end - start, least), most)
    start = min(max(0, (start + end - length) // 2), most - length)
    return start, start + length
