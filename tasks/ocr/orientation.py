"""Which way up a page was scanned, and the page turned upright.

Why it exists: a detector finds lines whichever way up they are, but a recogniser reads only upright ones. One look at
the whole page is cheaper and surer than one at every line, which turns upright lines over. The network (PP-LCNet, 224
pixels square) says by how many degrees the page is turned clockwise. It looks at squares along the page, and only
where it is sure is the page turned: a page that stays as it is costs nothing. It knows no session.
"""

from typing import Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

SIDE: Final = 224  # pixels; what the network was made for

_SHORT_SIDE: Final = 256  # pixels
_LEAST_PROBABILITY: Final = 0.75  # a page turned wrongly loses all its text, one left as it is often only some
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)

Image = NDArray[np.uint8]
Rotation = Literal[0, 90, 180, 270]

ROTATIONS: Final[tuple[Rotation, ...]] = (0, 90, 180, 270)  # degrees, by class


def network_input(page: Image) -> NDArray[np.float32]:
    """Return what the network reads of a page, uint8[height, width, 3]: float32[1, 3, 224, 224]."""
    height, width = page.shape[:2]
    scale = _SHORT_SIDE / min(height, width)
    # Only the middle of a long page is seen, so only that is resized.
    reach = round(SIDE / scale)
    top, left = max(0, (height - reach) // 2), max(0, (width - reach) // 2)
    middle = page[top : top + reach, left : left + reach]
    small = cv2.resize(middle, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(((small / np.float32(255) - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None], np.float32)


def rotation(probabilities: NDArray[np.float32]) -> Rotation:
    """Return by how many degrees a page is turned, 0 where the network is not sure.

    Args:
        probabilities: float32[looks, 4].
    """
    mean = probabilities.mean(axis=0)
    best = int(mean.argmax())
    return ROTATIONS[best] if mean[best] >= _LEAST_PROBABILITY else 0


def upright(page: Image, turned: Rotation) -> Image:
    """Undo a rotation, given in degrees clockwise."""
    return np.ascontiguousarray(np.rot90(page, turned // 90))
