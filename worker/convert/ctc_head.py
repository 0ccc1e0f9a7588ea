"""Cuts the classes that nobody needs off the end of a text recogniser.

Why it exists: a network that reads 18,708 characters spends a quarter of its time on the last matrix product and the
softmax over them. For one script a few hundred remain: columns of the last weight and of the bias are left out, all
else stays as it is, so a line reads as before wherever the best class is among those kept. It knows matrices, no
characters.
"""

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from worker.errors import ModelError


def cut_classes(model: ModelProto, kept: Sequence[int]) -> ModelProto:
    """Return a copy whose last linear layer has the classes `kept` only, in that order.

    Args:
        model: ends in MatMul, Add (with constants) and Softmax; Identity may stand in between.
        kept: class indices.

    Raises:
        ModelError: the graph ends in something else.
    """
    cut = ModelProto()
    cut.CopyFrom(model)
    constants = {each.name: each for each in cut.graph.initializer}
    softmax = _producer(cut, cut.graph.output[0].name, "Softmax")
    add = _producer(cut, softmax.input[0], "Add")
    product, bias = _split(add, constants)
    weight = next(name for name in _producer(cut, product, "MatMul").input if name in constants)
    for name in (weight, bias):
        values = numpy_helper.to_array(constants[name])
        constants[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[..., list(kept)]), name))
    cut.graph.output[0].type.tensor_type.shape.dim[-1].dim_value = len(kept)
    del cut.graph.value_info[:], cut.metadata_props[:]
    return cut


def _producer(model: ModelProto, tensor: str, kind: str) -> NodeProto:
    """Return the node that makes a tensor, looking through Identity.

    Raises:
        ModelError: it is of another kind.
    """
    made_by: dict[str, NodeProto] = {name: node for node in model.graph.node for name in node.output}
    node = made_by.get(tensor)
    while node is not None and node.op_type == "Identity":
        node = made_by.get(node.input[0])
    if node is None or node.op_type != kind:
        found = node.op_type if node is not None else "an input or a constant"
        raise ModelError(f"the recogniser's end is not as expected: {kind} was looked for, {found} is there")
    return node


def _split(add: NodeProto, constants: dict[str, TensorProto]) -> tuple[str, str]:
    """Return an addition's variable and its constant."""
    bias = [name for name in add.input if name in constants]
    variable = [name for name in add.input if name not in constants]
    if len(bias) != 1 or len(variable) != 1:
        raise ModelError("the recogniser's end is not as expected: no constant bias")
    return variable[0], bias[0]
