"""What a line says: crops into batches of equal width, and the network's scores into text (CTC).

Why it exists: the decoding has pitfalls that each cost a wrong text once: class 0 is the blank, the dictionary starts
at class 1, the space is the last class; repeats are collapsed before blanks are dropped, or double letters vanish; and
a dictionary split by `splitlines()` loses the entries that are line ends themselves. The module knows no session and
no picture but a crop's width.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.ocr.crops import Crop
from worker.errors import ModelError
from worker.planner import plan_equal

MAX_BATCH_CROPS: Final = 8
MAX_BATCH_WIDTH: Final = 2_560  # pixels, of all crops together
LEAST_SCORE: Final = 0.5

_BLANK: Final = 0
_SPECIAL_CLASSES: Final = 2  # blank and space


class Reading(NamedTuple):
    """What a crop says.

    Attributes:
        text: may be empty.
        score: mean over the characters of how sure the network is, 0 to 1; 0 if there are none.
    """

    text: str
    score: float


class Alphabet:
    """The characters by class, blank first and space last.

    Args:
        dictionary: characters separated by line feeds, as the network's maker wrote them.

    Raises:
        ModelError: an entry is not one character.
    """

    def __init__(self, dictionary: str) -> None:
        entries = dictionary.split("\n")
        if any(len(entry) != 1 for entry in entries):
            raise ModelError(
                "the dictionary of a recognition model has a line that is not one character; build it again"
            )
        self.characters = ("", *entries, " ")

    def require_classes(self, classes: int) -> None:
        """Check that the network has a class for each character.

        Raises:
            ModelError: it has more or fewer.
        """
        if classes != len(self.characters):
            raise ModelError(
                f"the recognition model has {classes} classes, but its dictionary asks for {len(self.characters)} "
                f"({len(self.characters) - _SPECIAL_CLASSES} characters, blank and space); build the model again"
            )

    def decode(self, probabilities: NDArray[np.float32]) -> list[Reading]:
        """Read what the network gave for a batch.

        Args:
            probabilities: float32[batch, steps, classes].

        Raises:
            ModelError: another number of classes than characters.
        """
        self.require_classes(probabilities.shape[2])
        classes = probabilities.argmax(axis=2)
        scores = np.take_along_axis(probabilities, classes[:, :, None], axis=2)[:, :, 0]
        return [self._reading(*row) for row in zip(classes, scores, strict=True)]

    def _reading(self, classes: NDArray[np.intp], scores: NDArray[np.float32]) -> Reading:
        kept = np.ones(len(classes), bool)
        kept[1:] = classes[1:] != classes[:-1]
        kept &= classes != _BLANK
        if not kept.any():
            return Reading("", 0.0)
        return Reading("".join(self.characters[index] for index in classes[kept]), float(scores[kept].mean()))


def batches(crops: Sequence[Crop]) -> list[list[int]]:
    """Put crops of equal padded width together, as indices, as a worker does: at most 8 crops and 2,560 pixels a batch.

    A wider crop runs alone.
    """
    return plan_equal([crop.padded_width for crop in crops], MAX_BATCH_CROPS, MAX_BATCH_WIDTH)


def lines(crops: Sequence[Crop], readings: Sequence[Reading]) -> dict[int, Reading]:
    """Join what the crops of each line say: by line, without lines that say nothing or are too unsure to be told.

    Args:
        crops: of one page, in the order in which they were cut.
        readings: one for each crop.
    """
    found: dict[int, Reading] = {}
    for line, reading in _joined(crops, readings):
        if reading.text.strip() and reading.score >= max(LEAST_SCORE, found.get(line, _NOTHING).score):
            found[line] = reading
    return found


_NOTHING: Final = Reading("", 0.0)


def _joined(crops: Sequence[Crop], readings: Sequence[Reading]) -> Iterator[tuple[int, Reading]]:
    """Yield line and text of every way to read a line, its parts put together."""
    pairs = zip(crops, readings, strict=True)
    for (line, _), group in groupby(pairs, key=lambda pair: (pair[0].line, pair[0].reading)):
        parts = [reading for _, reading in group]
        letters = sum(len(part.text) for part in parts)
        score = sum(part.score * len(part.text) for part in parts) / letters if letters else 0.0
        yield line, Reading(" ".join(part.text for part in parts if part.text), score)
