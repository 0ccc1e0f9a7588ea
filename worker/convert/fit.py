"""Fits a classifying head on embeddings and bags of tokens: multinomial logistic regression, deterministic, in numpy.

Why it exists: with the encoder frozen, the head is a convex problem that needs no training framework. It is solved in
the dual, where each text has one weight per class and features enter only by the texts' inner products: the bag has
tens of thousands of buckets, but a text few of them. Each step is Newton's with Böhning's bound on the Hessian
(1992), which is the same for all steps, so one inverse serves them all; Nesterov's momentum shortens the way.
It does not know the encoder, the texts or what a class means.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from worker.convert.bag import BUCKETS, bag_weight, buckets
from worker.convert.bert_graph import Head
from worker.errors import ModelError

FloatArray = NDArray[np.float32]

# Chosen by cross-validation over the hand-written training tickets, whole families of variants left out.
_PENALTY: Final = 0.03
_BAG_SHARE: Final = 5.0  # weight of the bag's inner product beside the embedding's

_TOLERANCE: Final = 1e-3  # of a text's probability of a class
_MAX_STEPS: Final = 2_000


def fit_head(embeddings: FloatArray, rows: Sequence[NDArray[np.int64]], classes: NDArray[np.int64]) -> Head:
    """Fit the head on labelled texts. Blocks: 3 s for 3,000 texts; memory grows with the square of their number.

    Args:
        embeddings: `float32[texts, width]`.
        rows: each text's token ids, `int64[tokens]`.
        classes: `int64[texts]`, each of 0 … largest at least once.

    Raises:
        ModelError: it does not converge; the embeddings are not finite, or far from unit length.
    """
    kernel = bag_kernel(rows)
    kernel *= np.float32(_BAG_SHARE)
    kernel += embeddings @ embeddings.T
    kernel += 1  # the bias
    dual = solve_dual(kernel, np.eye(classes.max() + 1, dtype=np.float32)[classes])
    table = np.zeros((BUCKETS, dual.shape[1]), np.float32)
    for row, weights in zip(rows, dual, strict=True):
        np.add.at(table, buckets(row), _BAG_SHARE * bag_weight(len(row)) * weights)
    return Head(weight=dual.T @ embeddings, table=table, bias=dual.sum(axis=0))


def bag_kernel(rows: Sequence[NDArray[np.int64]]) -> FloatArray:
    """Return the inner products of the texts' bags, `float32[texts, texts]`."""
    texts: dict[int, list[int]] = defaultdict(list)
    weights: dict[int, list[float]] = defaultdict(list)
    for text, row in enumerate(rows):
        for bucket, times in zip(*np.unique(buckets(row), return_counts=True), strict=True):
            texts[bucket].append(text)
            weights[bucket].append(times * bag_weight(len(row)))
    kernel = np.zeros((len(rows), len(rows)), np.float32)
    for bucket, members in texts.items():
        weight = np.array(weights[bucket], np.float32)
        kernel[np.ix_(members, members)] += np.outer(weight, weight)
    return kernel


def solve_dual(kernel: FloatArray, targets: FloatArray) -> FloatArray:
    """Minimise cross-entropy plus an L2 penalty; return each text's weight per class, `float32[texts, classes]`.

    Args:
        kernel: inner products, `float32[texts, texts]`.
        targets: one-hot, `float32[texts, classes]`.

    Raises:
        ModelError: no convergence.
    """
    bound = np.float32(0.5) * kernel
    np.fill_diagonal(bound, bound.diagonal() + np.float32(_PENALTY))
    inverse: FloatArray = np.linalg.inv(bound).astype(np.float32, copy=False)
    dual = ahead = np.zeros_like(targets)
    momentum = 1.0
    for _ in range(_MAX_STEPS):
        gradient = _softmax(kernel @ ahead) - targets + np.float32(_PENALTY) * ahead
        if np.abs(gradient).max() < _TOLERANCE:
            return ahead
        stepped = ahead - inverse @ gradient
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = stepped + np.float32((momentum - 1) / next_momentum) * (stepped - dual)
        dual, momentum = stepped, next_momentum
    raise ModelError(f"the head did not converge in {_MAX_STEPS} steps: check that the embeddings are finite")


def _softmax(logits: FloatArray) -> FloatArray:
    exponentials: FloatArray = np.exp(logits - logits.max(axis=1, keepdims=True))
    total: FloatArray = exponentials.sum(axis=1, keepdims=True)
    return exponentials / total
