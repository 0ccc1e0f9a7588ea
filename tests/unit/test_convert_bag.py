"""The bag of tokens is the same in numpy, where it is fitted, and in the graph, where it is used."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from worker.convert.bag import BUCKETS, bag_weight, buckets, write_bag
from worker.convert.graph import Graph
from worker.convert.inference import Run, runner

TABLE = np.random.default_rng(1).standard_normal((BUCKETS, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def run() -> Run:
    graph = Graph()
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    scores = graph.result(write_bag(graph, "input_ids", mask, TABLE), "logits")
    return runner(graph.model("bag", ["input_ids", "attention_mask"], {scores: 3}))


def expected(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    scores: NDArray[np.float32] = bag_weight(len(ids)) * TABLE[buckets(ids)].sum(axis=0)
    return scores


@pytest.mark.parametrize("ids", [[101], [101, 102], [101, 30_000, 7, 7, 102], [249_999] * 40], ids=len)
def test_the_graph_adds_up_what_numpy_does(run: Run, ids: list[int]) -> None:
    row = np.array(ids, np.int64)
    np.testing.assert_allclose(run([row])[0], expected(row), rtol=1e-5, atol=1e-5)


def test_padding_adds_nothing(run: Run) -> None:
    short, long = np.array([101, 5, 102], np.int64), np.arange(50, dtype=np.int64)
    np.testing.assert_allclose(run([short, long]), [expected(short), expected(long)], rtol=1e-5, atol=1e-5)


def test_word_order_counts() -> None:
    assert set(buckets(np.array([1, 2, 3]))) != set(buckets(np.array([1, 3, 2])))


def test_buckets_of_the_largest_known_vocabulary_are_spread() -> None:
    used = np.bincount(buckets(np.arange(250_037, dtype=np.int64)), minlength=BUCKETS)
    assert used.max() < 4 * used.mean()
