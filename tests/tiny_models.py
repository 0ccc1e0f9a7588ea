"""Writes complete model directories of random weights: small enough to build in a test, real enough for
onnxruntime.

`write_tiny_model` makes what Hugging Face Optimum would export of a BERT classifier. The labels mean nothing,
but they depend on the words, a row's scores do not depend on the other rows, and chosen words make the model
misbehave. Width 128 with two layers takes about 0.7 ms for 50 tokens, which is the benchmark's "tiny".
"""

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase, digits, punctuation
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

LABELS = ("access", "billing", "cancellation", "delivery", "feedback", "hardware", "outage", "refund")
WORDS = """
    the a my is not and to in on it was for i you please where why how can card order invoice parcel password
    login error money account screen router refund cancel late broken thanks hello help nan endless
""".split()  # noqa: SIM905 - a list of words reads best as words

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_ENDLESS_TRIPS = 2**62


def write_tiny_model(  # noqa: PLR0913 - one keyword for each way in which models differ
    directory: Path,
    *,
    labels: Sequence[str] = LABELS,
    words: Sequence[str] = WORDS,
    width: int = 32,
    layers: int = 2,
    max_length: int = 64,
    problem_type: Literal["single_label_classification", "multi_label_classification"] | None = None,
    token_type_ids: bool = True,
    probabilities: bool = False,
    output_name: str | None = None,
    onnx_name: str = "model.onnx",
    nan_word: str | None = None,
    endless_word: str | None = None,
    fixed_padding: bool = False,
    seed: int = 0,
) -> Path:
    """Write model, tokenizer.json, config.json and tokenizer_config.json into `directory`, which is made.

    Args:
        labels: what `id2label` names.
        words: known to the tokenizer whole; any other word is spelled, letter by letter.
        width: of the hidden states; a multiple of 16.
        layers: of the encoder.
        max_length: tokens that tokenizer.json truncates to, and positions that the graph has.
        problem_type: None leaves it out of config.json.
        token_type_ids: whether the graph has that input.
        probabilities: end in softmax (or sigmoid, if multi-label) instead of logits.
        output_name: None names the output by what it is.
        onnx_name: of the graph's file.
        nan_word: a text with this word gets NaN.
        endless_word: a batch with this word runs until it is cancelled.
        fixed_padding: let tokenizer.json pad to `max_length`, as some exports do.
        seed: of the weights.
    """
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(words)
    encoder = _Graph(np.random.default_rng(seed), width)
    hidden = encoder.embed(len(vocabulary), max_length, token_types=token_type_ids)
    for _ in range(layers):
        hidden = encoder.layer(hidden)
    logits = encoder.head(hidden, len(labels))
    if nan_word is not None:
        logits = encoder.spoil(logits, vocabulary[nan_word])
    if endless_word is not None:
        logits = encoder.hang(logits, vocabulary[endless_word])
    if probabilities:
        logits = (
            encoder.op("Sigmoid", logits) if problem_type == "multi_label_classification" else encoder.softmax(logits)
        )
    inputs = _INPUTS if token_type_ids else _INPUTS[:2]
    model = encoder.model(inputs, logits, output_name or ("probabilities" if probabilities else "logits"), len(labels))
    (directory / onnx_name).write_bytes(model.SerializeToString())
    _tokenizer(vocabulary, max_length, fixed_padding=fixed_padding).save(str(directory / "tokenizer.json"))
    config: dict[str, object] = {
        "model_type": "bert",
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "max_position_embeddings": max_length,
        "pad_token_id": 0,
    }
    _write_json(directory / "config.json", config | ({"problem_type": problem_type} if problem_type else {}))
    _write_json(directory / "tokenizer_config.json", {"pad_token": "[PAD]", "model_max_length": max_length})
    return directory


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _vocabulary(words: Sequence[str]) -> dict[str, int]:
    letters = [*ascii_lowercase, *digits, "ß"]
    tokens = dict.fromkeys([*_SPECIAL, *letters, *(f"##{letter}" for letter in letters), *punctuation, *words])
    return {token: index for index, token in enumerate(tokens)}


def _tokenizer(vocabulary: dict[str, int], max_length: int, *, fixed_padding: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    tokenizer.enable_truncation(max_length)
    if fixed_padding:
        tokenizer.enable_padding(length=max_length)
    return tokenizer


class _Graph:
    """Nodes and random weights of one BERT classifier; values are named by the node that makes them."""

    def __init__(self, random: np.random.Generator, width: int) -> None:
        self._random = random
        self._width = width
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: float | Sequence[int] | GraphProto) -> str:
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: object, dtype: type[np.generic]) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def embed(self, tokens: int, positions: int, *, token_types: bool) -> str:
        """Sum the embeddings of word, position and type: float[batch, sequence, width]."""
        length = self.op("Gather", self.op("Shape", "input_ids"), self.constant(1, np.int64))
        steps = self.op("Range", self.constant(0, np.int64), length, self.constant(1, np.int64))
        hidden = self.op("Gather", self._matrix(tokens, self._width, scale=1.0), "input_ids")
        hidden = self.op("Add", hidden, self.op("Gather", self._matrix(positions, self._width, scale=0.1), steps))
        if token_types:
            types = self.op("Gather", self._matrix(2, self._width, scale=0.1), "token_type_ids")
            hidden = self.op("Add", hidden, types)
        return self._norm(hidden)

    def layer(self, hidden: str) -> str:
        """Attend and feed forward, each with its residual."""
        hidden = self._norm(self.op("Add", hidden, self._attention(hidden)))
        inner = self.op("Gelu", self._linear(hidden, self._width, 4 * self._width))
        return self._norm(self.op("Add", hidden, self._linear(inner, 4 * self._width, self._width)))

    def head(self, hidden: str, labels: int) -> str:
        """Take the mean of the real tokens, and a linear layer: float[batch, labels]."""
        mask = self.op("Unsqueeze", self._mask(), self.constant([2], np.int64))
        axis = self.constant([1], np.int64)
        total = self.op("ReduceSum", self.op("Mul", hidden, mask), axis, keepdims=0)
        mean = self.op("Div", total, self.op("ReduceSum", mask, axis, keepdims=0))
        return self.op("MatMul", mean, self._matrix(self._width, labels, scale=0.6))

    def spoil(self, logits: str, token: int) -> str:
        """Put NaN in the rows that hold `token`."""
        return self.op("Where", self._holds(token, axis=1), self.constant(np.nan, np.float32), logits)

    def hang(self, logits: str, token: int) -> str:
        """Loop for ever if any row holds `token`."""
        anywhere = self.op("ReduceMax", self.op("Cast", self._holds(token, axis=1), to=TensorProto.INT64), keepdims=0)
        trips = self.op("Mul", anywhere, self.constant(_ENDLESS_TRIPS, np.int64))
        always = self.constant(True, np.bool_)  # noqa: FBT003 - an ONNX constant
        counted = self.op("Loop", trips, always, self.constant(0.0, np.float32), body=_counting())
        return self.op("Add", logits, self.op("Mul", counted, self.constant(0.0, np.float32)))

    def softmax(self, logits: str) -> str:
        return self.op("Softmax", logits, axis=-1)

    def model(self, inputs: Sequence[str], output: str, output_name: str, labels: int) -> ModelProto:
        self._nodes.append(helper.make_node("Identity", [output], [output_name], name=output_name))
        ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
        outputs = [helper.make_tensor_value_info(output_name, TensorProto.FLOAT, ["batch", labels])]
        graph = helper.make_graph(self._nodes, "tiny", ids, outputs, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        checker.check_model(model)
        return model

    def _attention(self, hidden: str) -> str:
        heads = self._width // 16
        split = self.constant([0, 0, heads, 16], np.int64)
        query, key, value = (
            self.op(
                "Transpose",
                self.op("Reshape", self._linear(hidden, self._width, self._width), split),
                perm=order,
            )
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        masked = self.op(
            "Mul",
            self.op("Sub", self._mask(), self.constant(1.0, np.float32)),
            self.constant(1e9, np.float32),
        )
        bias = self.op("Unsqueeze", masked, self.constant([1, 2], np.int64))
        weights = self.softmax(self.op("Add", self.op("MatMul", query, key), bias))
        mixed = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        merged = self.op("Reshape", mixed, self.constant([0, 0, self._width], np.int64))
        return self._linear(merged, self._width, self._width)

    def _mask(self) -> str:
        return self.op("Cast", "attention_mask", to=TensorProto.FLOAT)

    def _holds(self, token: int, axis: int) -> str:
        """Say of each row whether `token` is in it: bool[batch, 1]."""
        same = self.op("Cast", self.op("Equal", "input_ids", self.constant(token, np.int64)), to=TensorProto.INT64)
        found = self.op("ReduceMax", same, self.constant([axis], np.int64), keepdims=1)
        return self.op("Cast", found, to=TensorProto.BOOL)

    def _linear(self, hidden: str, rows: int, columns: int) -> str:
        product = self.op("MatMul", hidden, self._matrix(rows, columns, scale=0.5 * rows**-0.5))
        return self.op("Add", product, self.constant(np.zeros(columns), np.float32))

    def _norm(self, hidden: str) -> str:
        scale, bias = (
            self.constant(np.ones(self._width), np.float32),
            self.constant(np.zeros(self._width), np.float32),
        )
        return self.op("LayerNormalization", hidden, scale, bias, axis=-1, epsilon=1e-12)

    def _matrix(self, rows: int, columns: int, scale: float) -> str:
        return self.constant(self._normal(rows, columns) * scale, np.float32)

    def _normal(self, rows: int, columns: int) -> NDArray[np.float64]:
        return self._random.normal(size=(rows, columns))


def _counting() -> GraphProto:
    """Body of a loop that counts and never ends by itself."""
    scalar = [
        helper.make_tensor_value_info(name, kind, [])
        for name, kind in (
            ("step", TensorProto.INT64),
            ("go_on", TensorProto.BOOL),
            ("count", TensorProto.FLOAT),
            ("still", TensorProto.BOOL),
            ("counted", TensorProto.FLOAT),
        )
    ]
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    nodes = [
        helper.make_node("Identity", ["go_on"], ["still"]),
        helper.make_node("Add", ["count", "one"], ["counted"]),
    ]
    return helper.make_graph(nodes, "count", scalar[:3], scalar[3:], [one])
