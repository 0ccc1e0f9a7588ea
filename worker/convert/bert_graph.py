"""A BERT sentence encoder, with or without a classifying head, as one ONNX graph made from arrays.

Why it exists: a released encoder comes as weights; turning them into ONNX usually takes PyTorch (gigabytes) to trace
them. The architecture is known, so the graph is written down directly. What differs from a traced export: the rows
of all texts stay in one matrix `[batch * sequence, hidden]`, so that each linear layer is one plain matrix product;
query, key and value share one product, with the attention's scale folded in; and the segment embedding is folded
into the positions, because a ticket is always segment 0. It does not know where weights come from, how texts become
ids, or what a class means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from worker.convert.bag import write_bag
from worker.convert.graph import Graph
from worker.errors import ModelError

FloatArray = NDArray[np.float32]
Weights = Mapping[str, FloatArray]

INPUTS: Final = ("input_ids", "attention_mask")
HEAD_WEIGHT: Final = "head.weight"

_MASKED: Final = -1e9  # added to the attention logit of a padding token; exp() of it is exactly 0
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class BertShape:
    """The sizes of a BERT encoder: counts, the width, and the epsilon of its layer norms."""

    layers: int
    heads: int
    hidden: int
    epsilon: float

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "BertShape":
        """Read the sizes from a Hugging Face `config.json`.

        Raises:
            ModelError: it describes something other than a BERT with exact GELU and absolute positions.
        """
        expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
        for key, value in expected.items():
            if config.get(key, value) != value:
                raise ModelError(f"config.json: {key} is {config[key]!r}, and this builder knows only {value!r}")
        try:
            layers, heads, hidden = (
                int(str(config[key])) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")
            )
            return cls(layers, heads, hidden, float(str(config["layer_norm_eps"])))
        except (KeyError, ValueError) as error:
            raise ModelError(f"config.json does not give the sizes of a BERT encoder ({error})") from error

    @property
    def embedding_width(self) -> int:
        """The width of the embedding: the middle and the last layer, one beside the other."""
        return 2 * self.hidden


@dataclass(frozen=True, slots=True)
class Head:
    """A linear classifier over the embedding and the bag of tokens.

    Attributes:
        weight: `float32[classes, embedding width]`.
        table: `float32[bag.BUCKETS, classes]`.
        bias: `float32[classes]`.
    """

    weight: FloatArray
    table: FloatArray
    bias: FloatArray


def build_encoder(weights: Weights, shape: BertShape) -> ModelProto:
    """Return the encoder: `input_ids` and `attention_mask`, `int64[batch, sequence]`, to `embedding`.

    The embedding is `float32[batch, 2 * hidden]`: for the middle and for the last layer the mean over the real
    tokens, scaled to unit length.

    Args:
        weights: arrays under the names of Hugging Face's `BertModel`.
        shape: the sizes.

    Raises:
        ModelError: a weight is missing.
    """
    encoder = _Encoder(weights, shape)
    output = encoder.graph.result(encoder.encode(), "embedding")
    return encoder.graph.model("encoder", INPUTS, {output: shape.embedding_width})


def build_classifier(weights: Weights, shape: BertShape, head: Head) -> ModelProto:
    """Return encoder and head in one graph: ids and mask to `logits`, `float32[batch, classes]`.

    Raises:
        ModelError: a weight is missing.
    """
    encoder = _Encoder(weights, shape)
    g = encoder.graph
    product = g.op("MatMul", encoder.encode(), g.constant(head.weight.T, HEAD_WEIGHT))
    bag = write_bag(g, "input_ids", encoder.mask, head.table)
    logits = g.op("Add", g.op("Add", product, bag), g.constant(head.bias, "head.bias"))
    return g.model("classifier", INPUTS, {g.result(logits, "logits"): len(head.bias)})


class _Encoder:
    """Writes the layers of one encoder; `rows` is always the matrix `float32[batch * sequence, hidden]`."""

    def __init__(self, weights: Weights, shape: BertShape) -> None:
        self.graph = g = Graph()
        self._weights = weights
        self._shape = shape
        self._width = shape.hidden // shape.heads
        self.mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
        self._grid = g.op("Shape", "input_ids")
        hidden_from = g.op("Sub", g.scalar(1.0), self.mask)
        self._bias = g.op("Unsqueeze", g.op("Mul", hidden_from, g.scalar(_MASKED)), g.int64(1, 2))

    def encode(self) -> str:
        """Write all of it and return the embedding's name."""
        rows = self._embed()
        pooled = []
        for index in range(self._shape.layers):
            rows = self._attend(rows, f"encoder.layer.{index}.attention.")
            rows = self._feed_forward(rows, f"encoder.layer.{index}.")
            if index + 1 in {self._shape.layers // 2, self._shape.layers}:
                pooled.append(self._pool(rows))
        return self.graph.op("Concat", *pooled, axis=1)

    def _embed(self) -> str:
        """Add word and position embeddings."""
        g = self.graph
        positions = self._weight("embeddings.position_embeddings.weight")
        table = positions + self._weight("embeddings.token_type_embeddings.weight")[0]
        length = g.op("Shape", "input_ids", start=1, end=2)
        at = g.op("Slice", g.constant(table, "positions"), g.int64(0), length, g.int64(0))
        words = g.op("Gather", self._constant("embeddings.word_embeddings.weight"), "input_ids")
        rows = g.op("Reshape", g.op("Add", words, at), g.int64(-1, self._shape.hidden))
        return self._norm(rows, "embeddings.LayerNorm")

    def _attend(self, rows: str, layer: str) -> str:
        """Multi-head self-attention with its residual and norm."""
        g, heads = self.graph, self._shape.heads
        together = self._dense(rows, *self._query_key_value(layer), f"{layer}self")
        grid = g.op("Concat", self._grid, g.int64(3 * heads, self._width), axis=0)
        split = g.op("Transpose", g.op("Reshape", together, grid), perm=[0, 2, 1, 3])
        query, key, value = g.ops("Split", split, outputs=3, axis=1, num_outputs=3)
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        attention = g.op("Softmax", g.op("Add", scores, self._bias), axis=-1)
        mixed = g.op("Transpose", g.op("MatMul", attention, value), perm=[0, 2, 1, 3])
        return self._residual(rows, g.op("Reshape", mixed, g.int64(-1, self._shape.hidden)), f"{layer}output.")

    def _feed_forward(self, rows: str, layer: str) -> str:
        """Two dense layers with exact GELU between, their residual and norm."""
        wide = self._dense(rows, *self._linear(f"{layer}intermediate.dense"), f"{layer}intermediate.dense")
        return self._residual(rows, self.graph.op("Gelu", wide), f"{layer}output.")

    def _pool(self, rows: str) -> str:
        """Mean over the real tokens, scaled to unit length: `float32[batch, hidden]`."""
        g = self.graph
        texts = g.op("Reshape", rows, g.op("Concat", self._grid, g.int64(self._shape.hidden), axis=0))
        total = g.op("MatMul", g.op("Unsqueeze", self.mask, g.int64(1)), texts)
        direction = g.op("Squeeze", total, g.int64(1))
        length = g.op("ReduceL2", direction, g.int64(1), keepdims=1)
        return g.op("Div", direction, g.op("Max", length, g.scalar(_TINY)))

    def _residual(self, rows: str, inner: str, part: str) -> str:
        out = self._dense(inner, *self._linear(f"{part}dense"), f"{part}dense")
        return self._norm(self.graph.op("Add", rows, out), f"{part}LayerNorm")

    def _dense(self, rows: str, weight: FloatArray, bias: FloatArray, name: str) -> str:
        product = self.graph.op("MatMul", rows, self.graph.constant(weight.T, f"{name}.weight"))
        return self.graph.op("Add", product, self.graph.constant(bias, f"{name}.bias"))

    def _query_key_value(self, layer: str) -> tuple[FloatArray, FloatArray]:
        parts = [self._linear(f"{layer}self.{part}") for part in ("query", "key", "value")]
        scale = np.float32(self._width**-0.5)
        parts[0] = (parts[0][0] * scale, parts[0][1] * scale)
        return np.concatenate([weight for weight, _ in parts]), np.concatenate([bias for _, bias in parts])

    def _norm(self, rows: str, name: str) -> str:
        scale, bias = (self._constant(f"{name}.{part}") for part in ("weight", "bias"))
        return self.graph.op("LayerNormalization", rows, scale, bias, axis=-1, epsilon=self._shape.epsilon)

    def _linear(self, name: str) -> tuple[FloatArray, FloatArray]:
        return self._weight(f"{name}.weight"), self._weight(f"{name}.bias")

    def _constant(self, name: str) -> str:
        return self.graph.constant(self._weight(name), name)

    def _weight(self, name: str) -> FloatArray:
        if name not in self._weights:
            raise ModelError(f"the weights lack {name}: they are not a BERT encoder as Hugging Face names it")
        return self._weights[name]
