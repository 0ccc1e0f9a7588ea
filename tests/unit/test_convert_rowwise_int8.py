"""Row-wise INT8 stays close to FP32, and no row's result depends on another row."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from worker.convert.rowwise_int8 import quantise, to_int8

CHANCE = np.random.default_rng(5)
FIRST = CHANCE.standard_normal((16, 32)).astype(np.float32)
SECOND = CHANCE.standard_normal((32, 4)).astype(np.float32)
Array = NDArray[np.float32]


def two_layers(*dimensions: str | int) -> ModelProto:
    """Return x · FIRST · SECOND + x · FIRST · THIRD, with FP32 weights."""
    weights = {"first": FIRST, "second": SECOND, "third": SECOND[::-1]}
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("MatMul", ["positive", "second"], ["one"]),
        helper.make_node("MatMul", ["positive", "third"], ["other"]),
        helper.make_node("Add", ["one", "other"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dimensions, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*dimensions, 4])],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(model: ModelProto, *, optimised: bool = True, **feeds: NDArray[np.generic]) -> Array:
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def kinds(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("dimensions", [("rows",), ("batch", "rows"), ("batch", 2, "rows")], ids=len)
def test_the_result_is_close_to_fp32_for_activations_of_any_rank(dimensions: tuple[str | int, ...]) -> None:
    sizes = [2 if isinstance(size, int) else index + 2 for index, size in enumerate(dimensions)]
    x = CHANCE.standard_normal([*sizes, 16]).astype(np.float32)
    exact = run(two_layers(*dimensions), x=x)
    quantised = run(quantise(two_layers(*dimensions)), x=x)
    assert quantised.shape == exact.shape
    np.testing.assert_allclose(quantised, exact, atol=0.03 * np.abs(exact).max())


def test_no_row_depends_on_another_one() -> None:
    model = quantise(two_layers("rows"))
    row = CHANCE.standard_normal((1, 16)).astype(np.float32)
    crowd = np.concatenate([row, 1_000 * CHANCE.standard_normal((30, 16))]).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=crowd)[0], run(model, x=row)[0])


def test_the_optimised_graph_keeps_every_row_scale() -> None:
    # onnxruntime 1.32 fuses a row scale that stands in a tensor scale's place into MatMulIntegerToFloat,
    # which reads only the first row's.
    model = quantise(two_layers("rows"))
    x = (CHANCE.standard_normal((8, 16)) * np.logspace(-2, 2, 8)[:, None]).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x), run(model, x=x, optimised=False), rtol=1e-5)


def test_a_row_of_zeros_stays_zero() -> None:
    assert not run(quantise(two_layers("rows")), x=np.zeros((3, 16), np.float32)).any()


def test_an_activation_that_two_layers_read_is_quantised_once() -> None:
    model = quantise(two_layers("rows"))
    assert kinds(model).count("MatMulInteger") == 3
    assert kinds(model).count("QuantizeLinear") == 2


def test_a_kept_weight_stays_as_it_was() -> None:
    model = quantise(two_layers("rows"), keep=["second"])
    assert kinds(model).count("MatMul") == 1
    assert {each.name for each in model.graph.initializer} & {"first", "second", "third"} == {"second"}


def test_the_given_model_is_not_changed() -> None:
    model = two_layers("rows")
    before = model.SerializeToString()
    quantise(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(("words", "is_quantised"), [(2_000, True), (100, False)])
def test_a_large_table_is_looked_up_in_int8_with_a_scale_for_each_word(words: int, *, is_quantised: bool) -> None:
    table = (CHANCE.standard_normal((words, 8)) * np.logspace(-3, 3, words)[:, None]).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "table",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence", 8])],
        [numpy_helper.from_array(table, "table")],
    )
    model = quantise(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert ("Mul" in kinds(model)) == is_quantised
    ids = np.arange(words, dtype=np.int64).reshape(2, -1)
    np.testing.assert_allclose(run(model, ids=ids), table[ids], atol=float(np.abs(table[-1]).max()) / 100)
    np.testing.assert_allclose(run(model, ids=ids[:, :1])[0, 0], table[0], atol=float(np.abs(table[0]).max()) / 100)


def test_a_weight_comes_back_within_half_a_step() -> None:
    values, scales = to_int8(FIRST, axis=0)
    assert values.dtype == np.int8
    assert scales.shape == (1, 32)
    assert (np.abs(values * scales - FIRST) <= scales / 2 + 1e-6).all()


def test_the_model_can_be_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(quantise(two_layers("batch", "rows")).SerializeToString())
    ort.InferenceSession(path, providers=["CPUExecutionProvider"])
