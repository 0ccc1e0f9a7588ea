"""The graph computes what the BERT architecture says, checked against a forward pass written out in numpy."""

from math import erf

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.convert.bag import BUCKETS, bag_weight, buckets
from worker.convert.bert_graph import BertShape, Head, build_classifier, build_encoder
from worker.convert.inference import runner
from worker.errors import ModelError

SHAPE = BertShape(layers=4, heads=2, hidden=8, epsilon=1e-12)
CONFIG: dict[str, object] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "layer_norm_eps": 1e-12,
}
Array = NDArray[np.float64]


def random_weights() -> dict[str, NDArray[np.float32]]:
    chance = np.random.default_rng(3)
    sizes = {"word_embeddings.weight": (50, 8), "position_embeddings.weight": (32, 8)}
    sizes["token_type_embeddings.weight"] = (2, 8)
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{name}": size for name, size in sizes.items()}
    shapes |= {"embeddings.LayerNorm.weight": (8,), "embeddings.LayerNorm.bias": (8,)}
    for layer in range(SHAPE.layers):
        dense = {f"attention.self.{part}": (8, 8) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (8, 8), "intermediate.dense": (16, 8), "output.dense": (8, 16)}
        for name, size in dense.items():
            shapes |= {f"encoder.layer.{layer}.{name}.weight": size, f"encoder.layer.{layer}.{name}.bias": size[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"encoder.layer.{layer}.{name}.{part}": (8,) for part in ("weight", "bias")}
    return {name: chance.standard_normal(size).astype(np.float32) for name, size in shapes.items()}


WEIGHTS = random_weights()


def linear(x: Array, name: str) -> Array:
    return np.asarray(x @ WEIGHTS[f"{name}.weight"].T + WEIGHTS[f"{name}.bias"])


def norm(x: Array, name: str) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + SHAPE.epsilon)
    return np.asarray(scaled * WEIGHTS[f"{name}.weight"] + WEIGHTS[f"{name}.bias"])


def attention(x: Array, name: str) -> Array:
    heads = []
    for head in range(SHAPE.heads):
        part = slice(4 * head, 4 * head + 4)
        query, key, value = (linear(x, f"{name}self.{kind}")[:, part] for kind in ("query", "key", "value"))
        scores = query @ key.T / 2.0
        weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weight / weight.sum(axis=-1, keepdims=True) @ value)
    return norm(x + linear(np.concatenate(heads, axis=1), f"{name}output.dense"), f"{name}output.LayerNorm")


def embedding(ids: NDArray[np.int64]) -> Array:
    x = WEIGHTS["embeddings.word_embeddings.weight"][ids] + WEIGHTS["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + WEIGHTS["embeddings.position_embeddings.weight"][: len(ids)], "embeddings.LayerNorm")
    pooled = []
    for layer in range(SHAPE.layers):
        x = attention(x, f"encoder.layer.{layer}.attention.")
        wide = linear(x, f"encoder.layer.{layer}.intermediate.dense")
        gelu = wide * (1 + np.vectorize(erf)(wide / 2**0.5)) / 2
        x = norm(x + linear(gelu, f"encoder.layer.{layer}.output.dense"), f"encoder.layer.{layer}.output.LayerNorm")
        if layer in {1, 3}:
            pooled.append(x.mean(axis=0) / np.linalg.norm(x.mean(axis=0)))
    return np.concatenate(pooled)


ROWS = [np.array(ids, np.int64) for ids in ([1, 2, 3], [4], list(range(5, 30)))]


def test_the_encoder_computes_bert_whatever_the_padding() -> None:
    run = runner(build_encoder(WEIGHTS, SHAPE))
    np.testing.assert_allclose(run(ROWS), [embedding(row) for row in ROWS], atol=1e-5)


def test_the_classifier_adds_embedding_bag_and_bias() -> None:
    chance = np.random.default_rng(4)
    sizes = ((3, SHAPE.embedding_width), (BUCKETS, 3), (3,))
    head = Head(*(chance.standard_normal(size).astype(np.float32) for size in sizes))
    bags = [bag_weight(len(row)) * head.table[buckets(row)].sum(axis=0) for row in ROWS]
    expected = [head.weight @ embedding(row) + bag + head.bias for row, bag in zip(ROWS, bags, strict=True)]
    np.testing.assert_allclose(runner(build_classifier(WEIGHTS, SHAPE, head))(ROWS), expected, atol=1e-4)


def test_a_missing_weight_is_named() -> None:
    lacking = {name: weight for name, weight in WEIGHTS.items() if name != "encoder.layer.2.output.dense.bias"}
    with pytest.raises(ModelError, match=r"encoder\.layer\.2\.output\.dense\.bias"):
        build_encoder(lacking, SHAPE)


def test_the_shape_is_read_from_the_config() -> None:
    assert BertShape.from_config(CONFIG) == SHAPE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "roberta"}, "model_type"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_size": "wide"}, "sizes"),
    ],
)
def test_another_architecture_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        BertShape.from_config(CONFIG | change)


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(ModelError, match="layer_norm_eps"):
        BertShape.from_config({name: value for name, value in CONFIG.items() if name != "layer_norm_eps"})
