"""Reads a page from beginning to end in one thread: for use without a worker, for tests and for judging a build.

Why it exists: the steps of the other modules are pure and the networks stand between them; this is the shortest way
through all of it, and the worker's must give the same text. It decodes no file and batches over one page only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.ocr import crops, reading, recognition
from tasks.ocr.crops import Crop
from tasks.ocr.detection import Box
from tasks.ocr.layout import Layout, Networks, boxes, layout, run_network
from tasks.ocr.orientation import Rotation
from tasks.ocr.profiles import load_profile
from tasks.ocr.recognition import Reading
from worker.jobs import Cancellation

Image = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page.

    Attributes:
        text: what it says.
        score: how sure the network is of the text, 0.5 to 1.
        corners: float32[4, 2], x and y in pixels of the upright page: top left, top right, bottom right, bottom left.
    """

    text: str
    score: float
    corners: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says.

    Attributes:
        lines: in reading order.
        text: of the page; lines that stand side by side are joined by a space.
        rotation: by how many degrees clockwise the picture was turned; undone before all else.
        width: of the upright page, in pixels.
        height: likewise.
    """

    lines: tuple[Line, ...]
    text: str
    rotation: Rotation
    width: int
    height: int


class PageReader:
    """Reads pages with one profile.

    Args:
        directory: a profile, as `batchmill model build ocr` makes it.
        threads: intra-op threads.

    Raises:
        ModelError: the profile is missing or broken.
    """

    def __init__(self, directory: Path, threads: int = 1) -> None:
        cv2.setNumThreads(threads)
        self.networks = Networks(load_profile(directory), threads)

    def read(self, image: Image) -> Page:
        """Read a page, uint8[height, width, 3] BGR. Blocks for about a second with the profile `accurate`.

        Raises:
            ItemFailed: a network failed.
        """
        found = layout(image, self.networks, Cancellation())
        return page_of(found, found.crops, self.recognise(list(found.crops)))

    def detect(self, page: Image) -> list[Box]:
        """Find the lines of an upright page."""
        return boxes(page, self.networks, Cancellation())

    def recognise(self, cut: list[crops.Crop]) -> list[Reading]:
        """Read crops, in batches of equal width."""
        readings = [Reading("", 0.0)] * len(cut)
        for batch in recognition.batches(cut):
            values = crops.network_input([cut[index] for index in batch])
            scores = run_network(self.networks.recognition, values, Cancellation())
            for index, said in zip(batch, self.networks.alphabet.decode(scores), strict=True):
                readings[index] = said
        return readings


def page_of(found: Layout, cut: Sequence[Crop], readings: Sequence[Reading]) -> Page:
    """Put together what the crops of a page say.

    Args:
        found: where its lines stand.
        cut: its crops; their pixels are not looked at.
        readings: one for each of them.
    """
    said = recognition.lines(cut, readings)
    known = [Line(each.text, each.score, found.boxes[line]) for line, each in said.items()]
    rows = reading.rows([line.corners for line in known])
    text = "\n".join(" ".join(known[index].text for index in row) for row in rows)
    return Page(tuple(known[index] for row in rows for index in row), text, found.rotation, found.width, found.height)
