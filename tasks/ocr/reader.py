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

from tasks.ocr import crops, detection, orientation, reading, recognition
from tasks.ocr.orientation import Rotation
from tasks.ocr.profiles import ProfileDir, load_profile
from tasks.ocr.recognition import Alphabet, Reading
from worker.jobs import Cancellation
from worker.models.session import Session

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


class Networks:
    """The three networks of a profile, loaded.

    Args:
        profile: where they lie.
        threads: intra-op threads of a run.
        providers: execution providers, best first.

    Attributes:
        profile: the same.
        alphabet: the characters that recognition knows.
        orientation: the session; it reads float32[batch, 3, 224, 224].
        detection: the session; it reads float32[batch, 3, height, width].
        recognition: the session; it reads float32[batch, 3, 48, width].

    Raises:
        ModelError: a file is broken.
    """

    def __init__(
        self, profile: ProfileDir, threads: int = 1, providers: Sequence[str] = ("CPUExecutionProvider",)
    ) -> None:
        self.profile = profile
        self.alphabet = Alphabet(profile.dictionary)
        self.orientation, self.detection, self.recognition = (
            Session(path, providers, threads) for path in (profile.orientation, profile.detection, profile.recognition)
        )


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
        rotation = orientation.rotation(_run(self.networks.orientation, orientation.network_input(image)))
        page = orientation.upright(image, rotation)
        boxes = self.detect(page)
        cut = [crop for line, box in enumerate(boxes) for crop in crops.crops(page, box.corners, line)]
        said = recognition.lines(cut, self.recognise(cut))
        order = reading.rows([boxes[line].corners for line in said])
        known = [Line(each.text, each.score, boxes[line].corners) for line, each in said.items()]
        text = "\n".join(" ".join(known[index].text for index in row) for row in order)
        height, width = page.shape[:2]
        return Page(tuple(known[index] for row in order for index in row), text, rotation, width, height)

    def detect(self, page: Image) -> list[detection.Box]:
        """Find the lines of an upright page."""
        height, width = page.shape[:2]
        plan = detection.plan(height, width, self.networks.profile.limits)
        small = detection.resized(page, plan)
        maps = [_run(self.networks.detection, detection.network_input(small, tile))[0, 0] for tile in plan.tiles]
        return detection.boxes(detection.merged(plan, maps), height, width)

    def recognise(self, cut: list[crops.Crop]) -> list[Reading]:
        """Read crops, in batches of equal width."""
        readings = [Reading("", 0.0)] * len(cut)
        for batch in recognition.batches(cut):
            scores = _run(self.networks.recognition, crops.network_input([cut[index] for index in batch]))
            for index, said in zip(batch, self.networks.alphabet.decode(scores), strict=True):
                readings[index] = said
        return readings


def _run(session: Session, values: NDArray[np.float32]) -> NDArray[np.float32]:
    return session.run({session.input_names[0]: values}, Cancellation())
