import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from schemas.errors import ErrorCode
from tasks.classify.model import TicketClassifier, pad, sigmoid, softmax
from tests.tiny_models import LABELS, WORDS, write_tiny_model
from worker.errors import ItemFailed, ModelError
from worker.jobs import Cancellation
from worker.models.repository import load_dir
from worker.models.session import Session

SHARED = Path(__file__).parents[2] / "../shared/data"
BANKING77 = SHARED / "models/banking77-minilm-l6"
TICKETS = SHARED / "tickets/banking77_en.parquet"

needs_banking77 = pytest.mark.skipif(
    not (BANKING77.is_dir() and TICKETS.is_file()), reason="the shared model is not beside this checkout"
)

TEXTS = ["my parcel is late", "refund", "please help i can not login", "the router is broken and my screen too"]


def load(directory: Path) -> TicketClassifier:
    found = load_dir(directory)
    return TicketClassifier(found, Session(found.onnx_path, ["CPUExecutionProvider"], threads=1))


def tiny(directory: Path, **options: Any) -> TicketClassifier:  # noqa: ANN401 - write_tiny_model's keywords
    return load(write_tiny_model(directory, **options))


def rows_of(model: TicketClassifier, texts: Sequence[str]) -> list[NDArray[np.int64]]:
    return [encoded.ids for encoded in model.encoder.encode(texts, "head_tail") if encoded]


def scores_of(model: TicketClassifier, texts: Sequence[str]) -> NDArray[np.float32]:
    return np.stack([row.scores for row in model.run(rows_of(model, texts), Cancellation())])


def test_single_label_scores_sum_to_one(tmp_path: Path) -> None:
    scores = scores_of(tiny(tmp_path), TEXTS)

    assert (scores.shape, scores.dtype) == ((4, len(LABELS)), np.float32)
    assert scores.sum(axis=1) == pytest.approx(1)


def test_multi_label_scores_stand_each_for_itself(tmp_path: Path) -> None:
    single = scores_of(tiny(tmp_path / "a"), TEXTS)
    multi = scores_of(tiny(tmp_path / "b", problem_type="multi_label_classification"), TEXTS)

    assert np.array_equal(single.argmax(axis=1), multi.argmax(axis=1))
    assert np.all((multi >= 0) & (multi <= 1))
    assert np.any(np.abs(multi.sum(axis=1) - 1) > 0.1)


@pytest.mark.parametrize("problem_type", ["single_label_classification", "multi_label_classification"])
def test_a_graph_that_ends_in_probabilities_gives_the_same_scores(tmp_path: Path, problem_type: str) -> None:
    logits = tiny(tmp_path / "a", problem_type=problem_type)
    probabilities = tiny(tmp_path / "b", problem_type=problem_type, probabilities=True)

    assert scores_of(probabilities, TEXTS) == pytest.approx(scores_of(logits, TEXTS), abs=1e-6)


def test_probabilities_are_seen_even_if_the_output_is_called_logits(tmp_path: Path) -> None:
    named = tiny(tmp_path / "a", probabilities=True, output_name="logits")

    assert scores_of(named, TEXTS) == pytest.approx(scores_of(tiny(tmp_path / "b"), TEXTS), abs=1e-6)


def test_a_graph_without_token_type_ids_is_not_fed_any(tmp_path: Path) -> None:
    assert scores_of(tiny(tmp_path, token_type_ids=False), TEXTS).shape == (4, len(LABELS))


def test_a_row_scores_the_same_in_any_batch(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    shuffle = random.Random(4)  # noqa: S311 - an order, not a secret
    texts = [" ".join(shuffle.choices(WORDS, k=shuffle.randint(1, 60))) for _ in range(60)]
    alone = np.concatenate([scores_of(model, [text]) for text in texts])
    for size in (2, 7, 32):
        order = shuffle.sample(range(len(texts)), len(texts))
        for start in range(0, len(order), size):
            part = order[start : start + size]
            batched = scores_of(model, [texts[index] for index in part])
            assert batched == pytest.approx(alone[part], abs=1e-5)
            assert np.array_equal(batched.argmax(axis=1), alone[part].argmax(axis=1))


def test_a_row_that_is_not_finite_is_its_own_error(tmp_path: Path) -> None:
    model = tiny(tmp_path, nan_word="nan")

    good, bad, also_good = model.run(rows_of(model, ["refund", "my nan is late", "refund"]), Cancellation())

    assert isinstance(bad, ItemFailed)
    assert bad.code is ErrorCode.MODEL_OUTPUT_NOT_FINITE
    assert np.array_equal(good.scores, also_good.scores)


def test_info_names_what_made_a_result(tmp_path: Path) -> None:
    info = tiny(tmp_path / "helpdesk").info

    assert (info["name"], info["precision"], info["provider"]) == (
        "helpdesk",
        "unspecified",
        "CPUExecutionProvider",
    )
    assert info["sha256"].startswith(info["version"])
    assert info["runtime"].startswith("onnxruntime ")


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 64), (32, 8)])
def test_a_sample_has_the_shape_asked_for_and_runs(tmp_path: Path, rows: int, length: int) -> None:
    model = tiny(tmp_path)

    sample = model.sample(rows, length)

    assert [np.asarray(row).shape for row in sample] == [(length,)] * rows
    assert len(model.run(sample, Cancellation())) == rows


def test_labels_that_do_not_fit_the_graph_are_refused(tmp_path: Path) -> None:
    config = write_tiny_model(tmp_path) / "config.json"
    config.write_text(json.dumps({"id2label": {"0": "a", "1": "b"}}))

    with pytest.raises(ModelError, match=r"shape \(4, 8\) for 4 texts, but id2label names 2 labels"):
        load(tmp_path)


def test_a_graph_that_wants_what_a_text_does_not_have_is_refused(tmp_path: Path) -> None:
    write_cast(tmp_path, "pixel_values", ["batch", "sequence"])

    with pytest.raises(ModelError, match=r"takes pixel_values, but a text gives input_ids"):
        load(tmp_path)


def test_a_graph_of_fixed_shape_is_refused(tmp_path: Path) -> None:
    write_cast(tmp_path, "input_ids", [1, 128])

    with pytest.raises(ModelError, match=r"fixed shape for input_ids: export with dynamic axes"):
        load(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "a", words=WORDS[:4])
    write_tiny_model(tmp_path / "b", words=[*WORDS, "charged", "twice"])
    (tmp_path / "b/tokenizer.json").rename(tmp_path / "a/tokenizer.json")

    with pytest.raises(ModelError, match="fails on plain text"):
        load(tmp_path / "a")


def write_cast(directory: Path, name: str, shape: list[str | int]) -> None:
    """Replace the graph by one that turns its only input into logits as it is."""
    write_tiny_model(directory)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape)]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)]
    nodes = [helper.make_node("Cast", [name], ["logits"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "cast", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (directory / "model.onnx").write_bytes(model.SerializeToString())


lengths = st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=20)


@given(lengths=lengths, pad_token_id=st.integers(min_value=0, max_value=9))
def test_padding_keeps_every_token_and_masks_the_rest(lengths: list[int], pad_token_id: int) -> None:
    rows = [np.arange(10, 10 + length) for length in lengths]

    tensors = pad(rows, pad_token_id)

    assert {tensor.shape for tensor in tensors.values()} == {(len(lengths), max(lengths))}
    for row, ids, mask in zip(rows, tensors["input_ids"], tensors["attention_mask"], strict=True):
        assert ids[: len(row)].tolist() == row.tolist()
        assert set(ids[len(row) :].tolist()) <= {pad_token_id}
        assert mask.tolist() == [1] * len(row) + [0] * (max(lengths) - len(row))
    assert not tensors["token_type_ids"].any()


def test_extreme_logits_do_not_overflow() -> None:
    logits = np.array([[1e4, -1e4, 0.0]], np.float32)

    assert softmax(logits).tolist() == [[1.0, 0.0, 0.0]]
    with np.errstate(over="ignore"):
        assert sigmoid(logits).tolist() == [[1.0, 0.0, 0.5]]


@needs_banking77
def test_the_session_reproduces_the_real_models_logits() -> None:
    golden = json.loads((BANKING77 / "golden.json").read_text())
    found = load_dir(BANKING77)
    session = Session(found.onnx_path, ["CPUExecutionProvider"], threads=1)
    expected = np.array(golden["model.onnx"]["batch1_logits"])
    logits = np.concatenate(
        [session.run(pad([np.array(ids)], found.pad_token_id), Cancellation()) for ids in golden["input_ids"]]
    )

    assert np.abs(logits - expected).max() < 0.5


@needs_banking77
def test_the_real_model_flips_no_label_in_shuffled_batches() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = parquet.read_table(TICKETS).column("text").to_pylist()[::40]
    model = load(BANKING77)
    alone = np.concatenate([scores_of(model, [text]) for text in texts])
    order = random.Random(7).sample(range(len(texts)), len(texts))  # noqa: S311 - an order, not a secret
    batched = np.concatenate(
        [scores_of(model, [texts[i] for i in order[start : start + 24]]) for start in range(0, len(order), 24)]
    )

    assert np.array_equal(batched.argmax(axis=1), alone[order].argmax(axis=1))
    assert np.abs(batched - alone[order]).max() < 1e-3
