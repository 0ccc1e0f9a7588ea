"""The order in which a person reads the lines of a page, and the page's text.

Why it exists: a detector finds boxes in no order, and sorting them by their top edge mixes lines of different heights.
Two boxes stand in one row if they overlap vertically by half of the lower one's height; in a slanted scan that is
judged along the slant. Columns are not recognised: what stands side by side is one row. Pure geometry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SAME_ROW: Final = 0.5  # overlap over the lower box's height
_STEEPEST: Final = 0.35  # radians (20 degrees); beyond it a box is no line of the page's direction
_LONG_ENOUGH: Final = 3.0  # width over height; the slant of a shorter box is chance

Corners = NDArray[np.float32]


def rows(boxes: Sequence[Corners]) -> list[list[int]]:
    """Group boxes into rows, top to bottom, each left to right, as indices.

    Args:
        boxes: float32[4, 2] each, x and y: top left, top right, bottom right, bottom left.
    """
    if not boxes:
        return []
    points = _levelled(np.stack(boxes).astype(np.float64))
    left = points[:, :, 0].min(axis=1)
    top, bottom = points[:, :2, 1].mean(axis=1).tolist(), points[:, 2:, 1].mean(axis=1).tolist()
    found: list[_Row] = []
    for index in np.lexsort((left, np.add(top, bottom))).tolist():
        fitting = [row for row in found if row.holds(top[index], bottom[index])]
        if not fitting:
            fitting = [_Row()]
            found += fitting
        fitting[-1].add(index, top[index], bottom[index])
    found.sort(key=lambda row: (row.top + row.bottom, left[row.indices[0]]))
    return [sorted(row.indices, key=lambda index: (left[index], top[index], index)) for row in found]


def text(boxes: Sequence[Corners], texts: Sequence[str]) -> str:
    """Return a page's text: a row is a line, boxes in it are separated by a space."""
    return "\n".join(" ".join(texts[index] for index in row) for row in rows(boxes))


@dataclass(slots=True)
class _Row:
    """Boxes side by side, and the mean of their edges, so that one high box does not swallow the next row."""

    indices: list[int] = field(default_factory=list)
    top: float = 0.0
    bottom: float = 0.0

    def holds(self, top: float, bottom: float) -> bool:
        shared = min(self.bottom, bottom) - max(self.top, top)
        return shared > 0 and shared >= _SAME_ROW * min(self.bottom - self.top, bottom - top)

    def add(self, index: int, top: float, bottom: float) -> None:
        self.indices.append(index)
        self.top += (top - self.top) / len(self.indices)
        self.bottom += (bottom - self.bottom) / len(self.indices)


def _levelled(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the page by the middle slant of its lines, so that they lie level."""
    along = points[:, 1] - points[:, 0]
    height = np.linalg.norm(points[:, 3] - points[:, 0], axis=1)
    angle = np.arctan2(along[:, 1], along[:, 0])
    lines = (np.linalg.norm(along, axis=1) >= _LONG_ENOUGH * height) & (np.abs(angle) <= _STEEPEST)
    if not lines.any():
        return points
    slant = float(np.median(angle[lines]))
    cosine, sine = np.cos(slant), np.sin(slant)
    return np.asarray(points @ np.array([[cosine, -sine], [sine, cosine]]))
