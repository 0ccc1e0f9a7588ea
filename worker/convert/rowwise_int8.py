"""Turns an FP32 graph into INT8 whose result for one text does not depend on the texts beside it.

Why it exists: dynamic quantisation takes one scale per tensor, so the largest value in a batch sets everybody's
rounding, and labels flip with the company they keep. Here each row (token) of an activation has its own scale:

    scale = max|row| / 127                      float32[rows]
    q     = QuantizeLinear(row, scale, 128)     uint8, symmetric around 128
    y     = MatMulInteger(q, weight) * column scale * row scale

Weights have a scale per column, a table of embeddings one per row. Only standard ONNX operators are used. Two things
to mind. The row scale multiplies after the integer product: where ONNX Runtime looks for a tensor's scale, 1.32 fuses
it into an operator that reads one value of it, silently wrong. And uint8 times int8 is exact on CPUs with VNNI or
AMX; older AVX2 kernels add pairs in 16 bits and may saturate, alike in every batch. This module does not know what
the graph is for, and leaves the judgement of the loss to `validate`.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper, shape_inference

from worker.convert.graph import Graph

PRECISION: Final = "int8-rowwise"

_LIMIT: Final = 127
_ZERO_POINT: Final = np.array(128, np.uint8)
_SMALLEST_MAXIMUM: Final = 1e-8  # a row of zeros would divide by zero
_SMALLEST_TABLE: Final = 1024  # rows; a shorter table is not worth a second look-up
_MATRIX: Final = 2  # dimensions


def quantise(model: ModelProto, keep: Collection[str] = ()) -> ModelProto:
    """Return a copy whose linear layers and embedding tables are INT8.

    Args:
        model: an FP32 graph, opset 18 or later.
        keep: names of weights that stay FP32, such as a small head.
    """
    rewrite = _Rewrite(shape_inference.infer_shapes(model), frozenset(keep))
    nodes = [new for node in model.graph.node for new in rewrite.node(node)]
    read = {name for node in nodes for name in node.input}
    constants = [each for each in (*model.graph.initializer, *rewrite.graph.constants) if each.name in read]
    quantised = ModelProto()
    quantised.CopyFrom(model)
    del quantised.graph.node[:], quantised.graph.initializer[:]
    quantised.graph.node.extend(nodes)
    quantised.graph.initializer.extend(constants)
    return quantised


def to_int8(weight: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise symmetrically, with one scale for each slice along `axis`.

    Returns:
        The values, same shape, and the scales, where `axis` has length 1: `weight` is about `values * scales`.
    """
    maximum = np.abs(weight).max(axis=axis, keepdims=True)
    scales = (np.maximum(maximum, _SMALLEST_MAXIMUM) / _LIMIT).astype(np.float32)
    return np.rint(weight / scales).astype(np.int8), scales


class _Rewrite:
    """Replaces one node at a time; an activation or a weight that several nodes read is quantised once."""

    def __init__(self, model: ModelProto, keep: frozenset[str]) -> None:
        self.graph = Graph(prefix="int8_")
        self._weights = {each.name: each for each in model.graph.initializer if _is_matrix(each)}
        self._keep = keep
        known = (*model.graph.value_info, *model.graph.input)
        self._dimensions = {value.name: len(value.type.tensor_type.shape.dim) for value in known}
        self._rows: dict[str, tuple[str, str]] = {}
        self._stored: dict[str, tuple[str, str]] = {}

    def node(self, node: NodeProto) -> list[NodeProto]:
        """Return what stands in the node's place: itself, or its INT8 form."""
        written = len(self.graph.nodes)
        if node.op_type == "MatMul" and self._is_quantised(node.input[1]):
            self._multiply(node.input[0], node.input[1])
        elif node.op_type == "Gather" and self._is_quantised(node.input[0], _SMALLEST_TABLE):
            self._look_up(node.input[0], node.input[1])
        else:
            return [node]
        self.graph.nodes[-1].output[0] = node.output[0]
        return self.graph.nodes[written:]

    def _is_quantised(self, name: str, least_rows: int = 0) -> bool:
        return name not in self._keep and name in self._weights and self._weights[name].dims[0] >= least_rows

    def _multiply(self, activation: str, weight: str) -> None:
        g = self.graph
        rows, row_scales = self._quantised_rows(activation, int(self._weights[weight].dims[0]))
        columns, column_scales = self._quantised_weight(weight, axis=0)
        product = g.op("Cast", g.op("MatMulInteger", rows, columns, g.shared(_ZERO_POINT)), to=TensorProto.FLOAT)
        scaled = g.op("Mul", g.op("Mul", product, column_scales), row_scales)
        if not self._is_flat(activation):
            outer = g.op("Shape", activation, end=-1)
            g.op("Reshape", scaled, g.op("Concat", outer, g.int64(int(self._weights[weight].dims[1])), axis=0))

    def _quantised_rows(self, activation: str, width: int) -> tuple[str, str]:
        """Return the names of the rows, `uint8[rows, width]`, and of their scales, `float32[rows, 1]`."""
        if activation not in self._rows:
            g = self.graph
            flat = self._is_flat(activation)
            rows = activation if flat else g.op("Reshape", activation, g.int64(-1, width))
            maximum = g.op("ReduceMax", g.op("Abs", rows), g.int64(-1), keepdims=1)
            scales = g.op("Mul", g.op("Max", maximum, g.scalar(_SMALLEST_MAXIMUM)), g.scalar(1 / _LIMIT))
            vector = g.op("Reshape", scales, g.int64(-1))
            zero_points = g.op("Expand", g.shared(_ZERO_POINT), g.op("Shape", vector))
            self._rows[activation] = (g.op("QuantizeLinear", rows, vector, zero_points, axis=0), scales)
        return self._rows[activation]

    def _look_up(self, table: str, ids: str) -> None:
        g = self.graph
        values, scales = self._quantised_weight(table, axis=1)
        words = g.op("Cast", g.op("Gather", values, ids), to=TensorProto.FLOAT)
        g.op("Mul", words, g.op("Gather", scales, ids))

    def _quantised_weight(self, name: str, axis: int) -> tuple[str, str]:
        if name not in self._stored:
            values, scales = to_int8(numpy_helper.to_array(self._weights[name]), axis)
            self._stored[name] = self.graph.constant(values, name), self.graph.constant(scales, f"{name}.scales")
        return self._stored[name]

    def _is_flat(self, activation: str) -> bool:
        return self._dimensions.get(activation) == _MATRIX


def _is_matrix(tensor: TensorProto) -> bool:
    return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == _MATRIX
