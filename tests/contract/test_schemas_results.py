"""The shape of a result: the model refuses what no worker may ever return."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.examples import result_example
from schemas.manifest import ModelManifest
from schemas.results import ClassifyResult, TicketResult

BASE = {"id": "a", "truncated": False, "tokens": 3}
BEST = {"label": "billing", "score": 0.7}
NEXT = {"label": "access", "score": 0.2}
ERROR = {"code": "empty_text", "message": "nothing to read"}

MANIFEST = {
    "name": "tickets-en",
    "version": "1",
    "file": "model.onnx",
    "sha256": "0" * 64,
    "precision": "fp32",
}


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(BEST, id="the best label"),
        pytest.param({**BEST, "scores": [BEST, NEXT]}, id="the two best labels"),
        pytest.param({"scores": []}, id="no label over the threshold"),
        pytest.param({"error": ERROR}, id="an error"),
        pytest.param({"label": "x", "score": 1}, id="a whole number as score"),
    ],
)
def test_an_outcome_is_a_label_or_an_error(outcome: dict[str, Any]) -> None:
    TicketResult.model_validate({**BASE, **outcome})


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"label": "x"}, id="label without score"),
        pytest.param({"score": 0.5}, id="score without label"),
        pytest.param({**BEST, "error": ERROR}, id="label and error"),
        pytest.param({"scores": [], "error": ERROR}, id="scores and error"),
        pytest.param({"scores": [BEST]}, id="scores without label"),
        pytest.param({**NEXT, "scores": [NEXT, BEST]}, id="worst first"),
        pytest.param({**NEXT, "scores": [BEST, NEXT]}, id="not the best label"),
        pytest.param({"label": "x", "score": float("nan")}, id="not a number"),
        pytest.param({"label": "x", "score": 1.0001}, id="a score above one"),
        pytest.param({"label": 3, "score": 0.5}, id="a number as label"),
        pytest.param({**BEST, "text": "x"}, id="an unknown field"),
        pytest.param({"error": {"code": "no_such_code", "message": ""}}, id="an unknown code"),
    ],
)
def test_anything_else_is_no_outcome(outcome: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TicketResult.model_validate({**BASE, **outcome})


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("timings", "queue_wait_s", -1.0),
        ("timings", "inference_s", float("inf")),
        ("timings", "batches", 1.5),
        ("timings", "queue_wait_is_lower_bound", 0),
        ("model", "sha256", "ABC"),
        ("model", "version", None),
    ],
)
def test_a_wrong_part_of_a_result_is_refused(part: str, field: str, value: object) -> None:
    result: Any = copy.deepcopy(result_example())
    ClassifyResult.model_validate(result)
    result[part][field] = value
    with pytest.raises(ValidationError):
        ClassifyResult.model_validate(result)


def test_a_manifest_needs_only_what_identifies_the_model() -> None:
    manifest = ModelManifest.model_validate(MANIFEST)
    assert (manifest.task, manifest.max_length, manifest.labels) == ("ticket-classification", None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", "../model.onnx"),
        ("file", "sub/model.onnx"),
        ("file", "sub\\model.onnx"),
        ("file", "model.bin"),
        ("name", "a/b"),
        ("name", "a@1"),
        ("name", ""),
        ("version", "1 beta"),
        ("sha256", "0" * 63),
        ("max_length", 0),
        ("labels", []),
        ("problem_type", "regression"),
        ("task", "ocr"),
        ("extra", 1),
    ],
)
def test_a_wrong_manifest_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        ModelManifest.model_validate({**MANIFEST, field: value})
