"""The three models of the queue benchmark, as model directories that every contestant loads alike.

- `minilm`: the shared banking77 model where present, else the default model: real work per ticket;
- `tiny`: a random 2-layer FP32 encoder of width 128 over the same tokenizer: the queue is most of the cost;
- `noop`: a graph that returns a constant behind a tokenizer that makes one token of any text: nothing but
  the queue.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save_model

from worker.convert.bag import BUCKETS
from worker.convert.bert_graph import BertShape, Head, build_classifier

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).parents[2]
SHARED = REPOSITORY.parent / "shared" / "data"
SHARED_MINILM = SHARED / "models" / "banking77-minilm-l6"
LABELS = ("billing", "access", "hardware", "delivery", "outage", "refund", "cancellation", "howto")

HIDDEN = 128
FEED_FORWARD = 512
LAYERS = 2
HEADS = 4
VOCABULARY = 30_522
POSITIONS = 512


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model directory under the name that the figures use."""

    name: str
    directory: Path


def bench_models(bench_dir: Path) -> list[BenchModel]:
    """The three models; the small ones are written below `bench_dir`."""
    minilm = SHARED_MINILM if SHARED_MINILM.exists() else _default_model()
    made = bench_dir / "models"
    return [
        BenchModel("minilm", minilm),
        BenchModel("tiny", _write_tiny(made / "tiny", minilm / "tokenizer.json")),
        BenchModel("noop", _write_noop(made / "noop")),
    ]


def _default_model() -> Path:
    from tasks.classify.build import build_default  # noqa: PLC0415 - it builds only where nothing is shared
    from worker.settings import load  # noqa: PLC0415 - as above

    return build_default(load().cache_dir)


def _write_tiny(directory: Path, tokenizer: Path) -> Path:
    """Random weights, full length: the tokenizer's own truncation and padding are removed."""
    settings = json.loads(tokenizer.read_text())
    settings["truncation"] = {
        "max_length": POSITIONS,
        "strategy": "LongestFirst",
        "stride": 0,
        "direction": "Right",
    }
    settings["padding"] = None
    shape = BertShape(layers=LAYERS, heads=HEADS, hidden=HIDDEN, epsilon=1e-12)
    weights = _random_weights()
    table = np.zeros((BUCKETS, len(LABELS)), np.float32)
    head = Head(weights.pop("head.weight"), table, weights.pop("head.bias"))
    return _write(directory, build_classifier(weights, shape, head), settings)


def _write_noop(directory: Path) -> Path:
    settings: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"Regex": r"[\s\S]+"}, "content": "any"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "[UNK]": 1, "any": 2}, "unk_token": "[UNK]"},
    }
    return _write(directory, _constant_logits(), settings)


def _write(directory: Path, model: ModelProto, tokenizer: Mapping[str, object]) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    save_model(model, directory / "model.onnx")
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {
        "model_type": "bert",
        "problem_type": "single_label_classification",
        "max_position_embeddings": POSITIONS,
        "id2label": {str(index): label for index, label in enumerate(LABELS)},
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def _constant_logits() -> ModelProto:
    """`input_ids: int64[batch, sequence]` → `logits: float32[batch, labels]`, the same row for every text."""
    row = np.linspace(1.0, -1.0, len(LABELS), dtype=np.float32)[None]
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "labels"], ["shape"], axis=0),
        helper.make_node("Expand", ["row", "shape"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "noop",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)])],
        [
            numpy_helper.from_array(row, "row"),
            numpy_helper.from_array(np.array([len(LABELS)], np.int64), "labels"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _random_weights() -> dict[str, np.ndarray]:
    """The arrays of a `BertModel` and of a head, small enough that no activation leaves its range."""
    rng = np.random.default_rng(0)
    sizes = {
        "embeddings.word_embeddings": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings": (POSITIONS, HIDDEN),
    }
    sizes |= {"embeddings.token_type_embeddings": (2, HIDDEN), "head": (len(LABELS), 2 * HIDDEN)}
    norms = ["embeddings.LayerNorm"]
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        sizes |= dict.fromkeys([*parts, f"{layer}.attention.output.dense"], (HIDDEN, HIDDEN))
        sizes |= {
            f"{layer}.intermediate.dense": (FEED_FORWARD, HIDDEN),
            f"{layer}.output.dense": (HIDDEN, FEED_FORWARD),
        }
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    weights = {f"{name}.weight": rng.normal(0, 0.05, size).astype(np.float32) for name, size in sizes.items()}
    weights |= {f"{name}.bias": np.zeros(size[0], np.float32) for name, size in sizes.items()}
    weights |= {f"{name}.weight": np.ones(HIDDEN, np.float32) for name in norms}
    weights |= {f"{name}.bias": np.zeros(HIDDEN, np.float32) for name in norms}
    return weights
