"""Where the lines of a page stand: the page turned upright, its lines found and cut out. In a worker and without one.

The networks of a profile are here because this is where the first two of them run; the third reads what was cut out.
It decodes no file and knows no batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.ocr import closer, crops, detection, orientation
from tasks.ocr.crops import Crop
from tasks.ocr.detection import Box
from tasks.ocr.orientation import Rotation
from tasks.ocr.profiles import ProfileDir
from tasks.ocr.recognition import Alphabet
from worker.jobs import Cancellation
from worker.models.session import Session

Image = NDArray[np.uint8]


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


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the lines of a page stand.

    Attributes:
        rotation: by how many degrees clockwise the page was turned.
        width, height: of the upright page, in pixels.
        boxes: the corners of each line, float32[4, 2].
        crops: the lines cut out, one or more of each.
    """

    rotation: Rotation
    width: int
    height: int
    boxes: tuple[NDArray[np.float32], ...]
    crops: tuple[Crop, ...]


def layout(image: Image, networks: Networks, cancellation: Cancellation) -> Layout:
    """Return where the lines of a decoded page stand, uint8[height, width, 3] BGR. Blocks.

    Raises:
        ItemFailed: a network failed or was cancelled.
    """
    looks = run_network(networks.orientation, orientation.network_input(image), cancellation)
    turned = orientation.rotation(looks)
    page = orientation.upright(image, turned)
    found = boxes(page, networks, cancellation)
    cut = tuple(crop for line, box in enumerate(found) for crop in crops.crops(page, box.corners, line))
    height, width = page.shape[:2]
    return Layout(turned, width, height, tuple(box.corners for box in found), cut)


def boxes(page: Image, networks: Networks, cancellation: Cancellation) -> list[Box]:
    """Find the lines of an upright page. Blocks; raises as `layout`."""
    found = _seen(page, networks, cancellation)
    for part in closer.parts(page, found, networks.profile.limits):
        found = closer.added(found, _seen(part.of(page), networks, cancellation), part, page.shape[:2])
    return found


def _seen(page: Image, networks: Networks, cancellation: Cancellation) -> list[Box]:
    """Find the lines of a page or a part of one in one look at it as a whole."""
    height, width = page.shape[:2]
    plan = detection.plan(height, width, networks.profile.limits)
    small = detection.resized(page, plan)
    if closer.is_empty(small):
        return []
    maps = [
        run_network(networks.detection, detection.network_input(small, tile), cancellation)[0, 0] for tile in plan.tiles
    ]
    return detection.boxes(detection.merged(plan, maps), height, width)


def run_network(session: Session, values: NDArray[np.float32], cancellation: Cancellation) -> NDArray[np.float32]:
    """Return what a network with one input gives. Blocks; raises as `layout`."""
    return session.run({session.input_names[0]: values}, cancellation)
