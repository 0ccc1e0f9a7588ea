"""The head is fitted to the optimum, the same one each time, and says in the primal what the dual found."""

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.convert.bag import BUCKETS, bag_weight, buckets
from worker.convert.bert_graph import Head
from worker.convert.fit import bag_kernel, fit_head, solve_dual
from worker.convert.validate import probabilities
from worker.errors import ModelError

CHANCE = np.random.default_rng(6)
CLASSES = np.arange(90) % 3
CENTRES = np.eye(3, 12)


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


EMBEDDINGS = unit(CENTRES[CLASSES] + 0.2 * CHANCE.standard_normal((90, 12)))
ROWS = [CHANCE.integers(1_000, 30_000, size).astype(np.int64) for size in CHANCE.integers(3, 20, 90)]


def logits(head: Head, embeddings: NDArray[np.float32], rows: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    bags = np.stack([bag_weight(len(row)) * head.table[buckets(row)].sum(axis=0) for row in rows])
    return np.asarray(embeddings @ head.weight.T + bags + head.bias, np.float32)


def test_texts_that_can_be_told_apart_are() -> None:
    head = fit_head(EMBEDDINGS, ROWS, CLASSES)
    scores = probabilities(logits(head, EMBEDDINGS, ROWS))
    assert (scores.argmax(axis=1) == CLASSES).all()
    assert scores.max(axis=1).min() > 0.5


def test_new_texts_are_told_apart_by_their_words_alone() -> None:
    words = CHANCE.integers(1_000, 30_000, (3, 20))
    rows = [np.array([101, *CHANCE.permutation(words[each])[:8], 102], np.int64) for each in CLASSES]
    head = fit_head(np.ones((90, 12), np.float32), rows, CLASSES)
    fresh = [np.array([101, *CHANCE.permutation(words[each])[:5], 102], np.int64) for each in CLASSES]
    assert (logits(head, np.ones((90, 12), np.float32), fresh).argmax(axis=1) == CLASSES).all()


def test_two_fits_are_equal_to_the_bit() -> None:
    one, other = (fit_head(EMBEDDINGS, ROWS, CLASSES) for _ in range(2))
    np.testing.assert_array_equal(one.weight, other.weight)
    np.testing.assert_array_equal(one.table, other.table)
    np.testing.assert_array_equal(one.bias, other.bias)


def test_the_bags_inner_products_are_those_of_the_written_out_bags() -> None:
    dense = np.zeros((len(ROWS), BUCKETS))
    for text, row in enumerate(ROWS):
        np.add.at(dense[text], buckets(row), bag_weight(len(row)))
    np.testing.assert_allclose(bag_kernel(ROWS), dense @ dense.T, atol=1e-5)


def test_the_solution_is_where_the_penalty_balances_the_error() -> None:
    targets = np.eye(3, dtype=np.float32)[CLASSES]
    kernel = np.asarray(EMBEDDINGS @ EMBEDDINGS.T, np.float32)
    dual = solve_dual(kernel, targets)
    gradient = probabilities(np.asarray(kernel @ dual, np.float32)) - targets + 0.03 * dual
    assert np.abs(gradient).max() < 2e-3


def test_embeddings_that_are_not_finite_are_an_error() -> None:
    broken = EMBEDDINGS.copy()
    broken[5] = np.nan
    with pytest.raises(ModelError, match="finite"):
        fit_head(broken, ROWS, CLASSES)
