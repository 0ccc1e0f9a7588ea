"""Convolutions become INT8 with ranges measured beforehand: the result hardly changes, and no batch matters."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from worker.convert.static_int8 import quantise_convolutions
from worker.jobs import Cancellation
from worker.models.session import Session

CHANCE = np.random.default_rng(0)
Images = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def network() -> ModelProto:
    """A convolution whose bias stands apart, Relu, another convolution; opset 11, as PP-OCR's networks have it."""
    first = CHANCE.normal(size=(8, 3, 3, 3), scale=0.2).astype(np.float32)
    second = CHANCE.normal(size=(4, 8, 1, 1), scale=0.2).astype(np.float32)
    bias = CHANCE.normal(size=(1, 8, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["conv", "bias"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["kept"]),
        helper.make_node("Conv", ["kept", "second"], ["y"]),
    ]
    constants = {"first": first, "second": second, "bias": bias}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)


def images(count: int = 1, seed: int = 0) -> Images:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3, 32, 32)).astype(np.float32)


def samples() -> Iterator[Images]:
    return (images(seed=seed) for seed in range(4))


def run(model: ModelProto, path: Path, values: Images) -> Images:
    path.write_bytes(model.SerializeToString())
    return Session(path, ["CPUExecutionProvider"], 1).run({"x": values}, Cancellation())


@pytest.fixture(scope="module")
def fp32() -> ModelProto:
    return network()


@pytest.fixture(scope="module")
def int8(fp32: ModelProto) -> ModelProto:
    return quantise_convolutions(fp32, samples())


def test_the_result_is_close(fp32: ModelProto, int8: ModelProto, tmp_path: Path) -> None:
    other = images(4, seed=99)
    expected = run(fp32, tmp_path / "fp32.onnx", other)
    assert run(int8, tmp_path / "int8.onnx", other) == pytest.approx(expected, abs=0.05 * float(np.abs(expected).max()))


def test_a_bias_that_stood_apart_is_part_of_its_convolution(int8: ModelProto) -> None:
    kinds = Counter(node.op_type for node in int8.graph.node)
    assert kinds["Conv"] == 2
    assert kinds["Add"] == 0
    assert kinds["QuantizeLinear"] > 0


def test_weights_have_a_scale_per_channel(int8: ModelProto) -> None:
    scales = {each.name: list(each.dims) for each in int8.graph.initializer if each.name.startswith("first_scale")}
    assert scales == {"first_scale": [8]}


def test_an_image_alone_and_in_a_batch_gives_the_same(int8: ModelProto, tmp_path: Path) -> None:
    batch = images(3)
    together = run(int8, tmp_path / "int8.onnx", batch)
    alone = np.concatenate([run(int8, tmp_path / "int8.onnx", batch[index : index + 1]) for index in range(3)])
    assert np.array_equal(together, alone)


def test_logging_works_afterwards(int8: ModelProto) -> None:
    assert int8 is not None
    assert logging.getLogger("anything").isEnabledFor(logging.WARNING)
