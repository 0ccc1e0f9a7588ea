"""What depends on the batch is found and refused; what only rounds differently is not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.convert.inference import BATCH_TOKENS, Rows, Run, padded, run_by_length
from worker.convert.validate import batch_independence, compare, probabilities
from worker.errors import ModelError

ROWS = [np.arange(1, size + 1, dtype=np.int64) for size in np.random.default_rng(7).integers(1, 60, 100)]


def by_itself(rows: Rows) -> NDArray[np.float32]:
    return np.array([[len(row), 30.0, row.sum() / 30] for row in rows], np.float32)


def moved_by_neighbours(share: float) -> Run:
    def run(rows: Rows) -> NDArray[np.float32]:
        return by_itself(rows) + np.float32(share * (max(map(len, rows)) - 1)) * np.array([1, 0, 0], np.float32)

    return run


def test_a_model_that_ignores_its_neighbours_passes() -> None:
    assert batch_independence(by_itself, ROWS).flips == 0


@pytest.mark.parametrize("share", [1.0, 0.01], ids=["flips", "moved scores"])
def test_a_model_that_minds_its_neighbours_is_refused(share: float) -> None:
    with pytest.raises(ModelError, match="depends on the batch"):
        batch_independence(moved_by_neighbours(share), ROWS)


def test_flips_and_the_largest_move_of_a_score_are_counted() -> None:
    reference = np.array([[0, 9], [9, 0], [0, 1]], np.float32)
    parity = compare(np.array([[0, 9], [0, 9], [0, 1]], np.float32), reference)
    assert (parity.texts, parity.flips) == (3, 1)
    assert parity.max_score_difference == pytest.approx(1.0, abs=1e-3)


def test_probabilities_stay_finite_for_huge_logits() -> None:
    np.testing.assert_allclose(probabilities(np.array([[1e4, -1e4]], np.float32)), [[1, 0]])


def test_rows_run_in_batches_of_like_length_come_back_in_their_order() -> None:
    shapes = []

    def run(rows: Rows) -> NDArray[np.float32]:
        shapes.append(padded(rows)["input_ids"].shape)
        return by_itself(rows)

    np.testing.assert_array_equal(run_by_length(run, ROWS), by_itself(ROWS))
    assert all(rows * length <= BATCH_TOKENS for rows, length in shapes)
    assert sum(rows * length for rows, length in shapes) < 1.2 * sum(map(len, ROWS))


def test_padding_is_masked() -> None:
    feeds = padded([np.array([7, 8, 9], np.int64), np.array([7], np.int64)])
    assert feeds["input_ids"].tolist() == [[7, 8, 9], [7, 0, 0]]
    assert feeds["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
