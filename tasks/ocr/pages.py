"""A document as the rest of the OCR sees it: a number of pages, each an upright picture with square pixels.

It does not know where pages come from, nor what is read from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ErrorCode
from worker.errors import ItemFailed

Pixels = NDArray[np.uint8]


class Unit(StrEnum):
    """What a source is measured in."""

    PIXEL = "px"
    POINT = "pt"


@dataclass(frozen=True, slots=True)
class Source:
    """A page as its document has it, turned upright.

    Attributes:
        width, height: of the source, in its unit.
        unit: pixels of an image file, points (1/72 inch) of a PDF.
        dpi: the source's units per inch, horizontally and vertically; None if the file does not say.
    """

    width: float
    height: float
    unit: Unit
    dpi: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page, ready to be read.

    Attributes:
        index: from 0.
        image: `uint8[height, width, 3]`, BGR, contiguous.
        source: what it was made of.
    """

    index: int
    image: Pixels
    source: Source

    @property
    def scale(self) -> tuple[float, float]:
        """Pixels of the image per unit of the source, horizontally and vertically."""
        height, width = self.image.shape[:2]
        return width / self.source.width, height / self.source.height


class Document(Protocol):
    """An opened document; its pages are decoded one at a time, when they are asked for."""

    @property
    def pages(self) -> int:
        """How many pages it has, at least 1."""
        ...

    def page(self, index: int) -> Page:
        """Return a page; blocks while it is decoded, for seconds at worst.

        Args:
            index: from 0.

        Raises:
            ItemFailed: this page cannot be had; the others are not affected.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds; may be called again."""
        ...


def check_index(index: int, pages: int) -> None:
    """Refuse a page that does not exist.

    Raises:
        ItemFailed: `no_such_page`.
    """
    if not 0 <= index < pages:
        raise ItemFailed(ErrorCode.NO_SUCH_PAGE, f"there is no page {index + 1}: the document has {pages}")
