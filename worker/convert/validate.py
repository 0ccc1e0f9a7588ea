"""Judges a converted classifier: does it still say what the FP32 graph says, whatever batch a text travels in?

Why it exists: a quantised graph that flips labels with its neighbours breaks the promise that a result depends on the
input and the model alone; such a model is refused before it is written. It measures with the runner that it is given
and does not know what texts, labels or precisions are.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from worker.convert.inference import Rows, Run
from worker.errors import ModelError

MAX_SCORE_DIFFERENCE: Final = 1e-3

_LARGEST_BATCH: Final = 32
_SHUFFLINGS: Final = 2


@dataclass(frozen=True, slots=True)
class Parity:
    """How a graph compares with its reference, over the same texts.

    Attributes:
        texts: how many.
        flips: how many got another class.
        max_score_difference: largest difference of a probability.
    """

    texts: int
    flips: int
    max_score_difference: float


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the softmax of each row: `float64[texts, classes]`."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def compare(logits: NDArray[np.float32], reference: NDArray[np.float32]) -> Parity:
    """Compare two outputs for the same texts, each `float32[texts, classes]`."""
    flips = int((logits.argmax(axis=1) != reference.argmax(axis=1)).sum())
    difference = np.abs(probabilities(logits) - probabilities(reference)).max()
    return Parity(len(logits), flips, float(difference))


def batch_independence(run: Run, rows: Rows, seed: int = 0) -> Parity:
    """Compare each text run alone with the same text in shuffled batches of mixed sizes and lengths.

    Blocks for three passes over the texts.

    Raises:
        ModelError: a class flipped, or a score moved by more than 0.001.
    """
    alone = np.concatenate([run([row]) for row in rows])
    chance = np.random.default_rng(seed)
    parities = [compare(_run_shuffled(run, rows, chance), alone) for _ in range(_SHUFFLINGS)]
    flips = max(parity.flips for parity in parities)
    moved = max(parity.max_score_difference for parity in parities)
    if flips or moved > MAX_SCORE_DIFFERENCE:
        raise ModelError(
            f"the model depends on the batch: {flips} of {len(rows)} texts got another class and a score moved by "
            f"{moved:.4f} beside other texts; quantise it row by row"
        )
    return Parity(len(rows), flips, moved)


def _run_shuffled(run: Run, rows: Rows, chance: np.random.Generator) -> NDArray[np.float32]:
    order = chance.permutation(len(rows))
    outputs = []
    start = 0
    while start < len(order):
        size = int(chance.integers(1, _LARGEST_BATCH, endpoint=True))
        outputs.append(run([rows[index] for index in order[start : start + size]]))
        start += size
    return np.concatenate(outputs)[np.argsort(order)]
