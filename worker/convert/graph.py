"""An ONNX graph under construction: nodes, constants, fresh names.

Why it exists: the graph builders and rewriters say what they compute, and this names the tensors. It knows ONNX's
syntax only: no architecture, no arithmetic, no runtime.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

OPSET: Final = 21
IR_VERSION: Final = 10

Array = NDArray[Any]  # Any: a graph holds constants of every dtype


class Graph:
    """Nodes in the order of their creation, and the constants that they read.

    Args:
        prefix: starts every name made here, so that the nodes fit into another graph.

    Attributes:
        nodes: the nodes so far.
        constants: the initialisers so far.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._prefix = prefix
        self._shared: dict[tuple[str, bytes, tuple[int, ...]], str] = {}

    def constant(self, array: Array, name: str) -> str:
        """Store an array under `name`, with the prefix, and return that."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), self._prefix + name))
        return self._prefix + name

    def shared(self, array: Array) -> str:
        """Store a small constant once, however often it is asked for, and return its name."""
        key = (array.dtype.str, array.tobytes(), array.shape)
        if key not in self._shared:
            name = f"{self._prefix}const_{len(self._shared)}"
            self.constants.append(numpy_helper.from_array(array, name))
            self._shared[key] = name
        return self._shared[key]

    def int64(self, *values: int) -> str:
        """Return the name of an int64 vector."""
        return self.shared(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """Return the name of a float32 scalar."""
        return self.shared(np.array(value, np.float32))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Append a node with one output and return the output's name."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: object) -> list[str]:
        """Append a node with several outputs and return their names."""
        name = f"{self._prefix}{kind}_{len(self.nodes)}"
        names = [f"{name}_out{i}" for i in range(outputs)]
        node = helper.make_node(kind, inputs, names, name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return names

    def result(self, tensor: str, name: str) -> str:
        """Rename the newest node's output, which is `tensor`, and return `name`."""
        if tensor != self.nodes[-1].output[0]:
            raise ValueError(f"{tensor} is not what the newest node yields")
        self.nodes[-1].output[0] = name
        return name

    def model(self, name: str, inputs: Sequence[str], outputs: Mapping[str, int]) -> ModelProto:
        """Close the graph and return the checked model.

        Args:
            name: the graph's name.
            inputs: names of inputs, each `int64[batch, sequence]`.
            outputs: names and widths of outputs, each `float32[batch, width]`.
        """
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(i, TensorProto.INT64, ["batch", "sequence"]) for i in inputs],
            [helper.make_tensor_value_info(o, TensorProto.FLOAT, ["batch", w]) for o, w in outputs.items()],
            self.constants,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="batchmill")
        checker.check_model(model)
        return model
