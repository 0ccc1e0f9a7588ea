"""A picture of what was read, for people: the page with its boxes, and beside it the text where it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

from tasks.ocr.orientation import upright

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tasks.ocr.reader import Page

_SURE: Final = (60, 130, 0)
_UNSURE: Final = (0, 90, 220)
_SURE_FROM: Final = 0.9
_WHITE: Final = 255
_LEAST_FONT_PX: Final = 8
_FONT_SHARE: Final = 0.7  # of a line's height
_WEIGHT: Final = 400


def overlaid(image: NDArray[np.uint8], page: Page) -> NDArray[np.uint8]:
    """Return the upright page and, beside it, its text at the same places: uint8[height, 2 × width, 3] BGR.

    What is unsure is orange.

    Args:
        image: uint8[height, width, 3] BGR, as it was read.
        page: what was read.
    """
    both = np.full((page.height, 2 * page.width, 3), _WHITE, np.uint8)
    both[:, : page.width] = upright(image, page.rotation)
    face = cv2.FontFace("sans")  # OpenCV's own typeface has every letter that a Latin alphabet knows
    for line in page.lines:
        colour = _SURE if line.score >= _SURE_FROM else _UNSURE
        cv2.polylines(both, [np.rint(line.corners).astype(np.int32)], isClosed=True, color=colour, thickness=2)
        left, bottom = line.corners[3]
        size = max(_LEAST_FONT_PX, round(_FONT_SHARE * float(np.linalg.norm(line.corners[3] - line.corners[0]))))
        cv2.putText(both, line.text, (page.width + int(left), int(bottom)), colour, face, size, _WEIGHT)
    return both


def overlaid_png(image: NDArray[np.uint8], page: Page) -> bytes:
    """Return the picture of `overlaid` as a PNG file."""
    return cv2.imencode(".png", overlaid(image, page))[1].tobytes()
