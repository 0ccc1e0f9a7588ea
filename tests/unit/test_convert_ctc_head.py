"""The last layer of a recogniser is cut to the classes that are needed, and nothing else changes."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from worker.convert.ctc_head import cut_classes
from worker.errors import ModelError
from worker.jobs import Cancellation
from worker.models.session import Session

CHANCE = np.random.default_rng(0)
WEIGHT = CHANCE.normal(size=(4, 10)).astype(np.float32)
BIAS = CHANCE.normal(size=10).astype(np.float32)
STEPS = CHANCE.normal(size=(2, 3, 4)).astype(np.float32)


def recogniser(*, softmax: bool = True, bias: bool = True) -> ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["product"])]
    nodes += [helper.make_node("Add", ["product", "bias" if bias else "product"], ["sum"])]
    nodes += [helper.make_node("Identity", ["sum"], ["logits"])]
    nodes += [helper.make_node("Softmax" if softmax else "Relu", ["logits"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "recogniser",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "steps", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "steps", 10])],
        [numpy_helper.from_array(WEIGHT, "weight"), numpy_helper.from_array(BIAS, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


def run(model: ModelProto, path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    path.write_bytes(model.SerializeToString())
    return Session(path, ["CPUExecutionProvider"], 1).run({"x": STEPS}, Cancellation())


def test_the_kept_classes_compete_among_themselves(tmp_path: Path) -> None:
    kept = [0, 7, 3, 9]
    whole = run(recogniser(), tmp_path / "whole.onnx")[:, :, kept]
    cut = run(cut_classes(recogniser(), kept), tmp_path / "cut.onnx")
    assert cut == pytest.approx(whole / whole.sum(axis=2, keepdims=True), abs=1e-6)


def test_the_original_stays_as_it_is() -> None:
    model = recogniser()
    before = model.SerializeToString()
    cut_classes(model, [0, 1])
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        pytest.param(recogniser(softmax=False), "Softmax was looked for, Relu is there", id="another end"),
        pytest.param(recogniser(bias=False), "no constant bias", id="no bias"),
    ],
)
def test_another_graph_is_refused(model: ModelProto, fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        cut_classes(model, [0, 1])
