"""The contract of reading documents: which requests are taken, and that schema and worker agree on them."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas import ocr_examples
from schemas.asyncapi import OCR_REQUEST_FILE, OCR_RESULT_FILE
from schemas.errors import ErrorCode, MessageError
from schemas.names import QUEUE_OCR, TASK_OCR_DOCUMENTS
from schemas.ocr import OcrResult, parse_ocr

COMMITTED = Path(__file__).parents[2] / "schemas" / "json"
DOCUMENT = {"id": "a", "content": "AAAA"}


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((COMMITTED / name).read_bytes()))


def test_names_are_those_of_the_contract() -> None:
    assert (TASK_OCR_DOCUMENTS, QUEUE_OCR) == ("ocr.documents", "ocr")


def test_the_examples_are_right_for_the_models_and_for_the_schemas() -> None:
    parse_ocr((), ocr_examples.request_example())
    OcrResult.model_validate_json(json.dumps(ocr_examples.result_example()))
    validator(OCR_REQUEST_FILE).validate(ocr_examples.request_example())
    validator(OCR_RESULT_FILE).validate(ocr_examples.result_example())


@pytest.mark.parametrize(
    ("documents", "code"),
    [
        ([], ErrorCode.NO_DOCUMENTS),
        ([{"id": str(number)} for number in range(1_001)], ErrorCode.TOO_MANY_DOCUMENTS),
        ([DOCUMENT, DOCUMENT], ErrorCode.DUPLICATE_ID),
        ([DOCUMENT | {"colour": "red"}], ErrorCode.UNKNOWN_FIELD),
        ([DOCUMENT | {"uri": "s3://lake/red"}], ErrorCode.INVALID_MESSAGE),
        ([DOCUMENT | {"first_page": 3, "last_page": 2}], ErrorCode.INVALID_MESSAGE),
        ([DOCUMENT | {"first_page": 0}], ErrorCode.INVALID_MESSAGE),
    ],
    ids=["none", "too many", "one id twice", "a field too many", "two sources", "no pages", "page 0"],
)
def test_a_wrong_request_is_refused_by_its_code_and_quotes_no_value(
    documents: list[dict[str, object]], code: ErrorCode
) -> None:
    with pytest.raises(MessageError) as refusal:
        parse_ocr((), {"documents": documents})
    assert refusal.value.code is code
    assert "red" not in str(refusal.value)


def test_arguments_by_position_are_refused() -> None:
    with pytest.raises(MessageError, match="by keyword"):
        parse_ocr(([DOCUMENT],), {})


@pytest.mark.parametrize("kind", ["document", "page"])
def test_an_error_comes_without_text(kind: str) -> None:
    result = ocr_examples.result_example()
    (document, failed) = result["results"]
    part = document if kind == "document" else document["pages"][0]
    part["error"] = failed["error"]
    with pytest.raises(ValidationError, match="an error comes without"):
        OcrResult.model_validate_json(json.dumps(result))


pages = st.none() | st.booleans() | st.integers(-1, 3) | st.just("1")
requests = st.fixed_dictionaries(
    {"id": st.sampled_from(["a", "", "x" * 257])},
    optional={
        "uri": st.text(max_size=5),
        "content": st.text(max_size=5),
        "first_page": pages,
        "last_page": pages,
        "other": st.integers(),
    },
)


@given(requests)
@settings(deadline=None)
def test_the_schema_and_the_worker_accept_the_same_documents(document: dict[str, object]) -> None:
    request = {"documents": [document]}
    try:
        (parsed,) = parse_ocr((), request).documents
    except MessageError as refusal:
        accepted = "last_page comes before" in str(refusal)  # JSON Schema cannot compare two fields
    else:  # one without a source is an item's error at the worker, and wrong for the schema
        accepted = bool(parsed.model_fields_set & {"uri", "content"})
    if {"uri", "content"} <= document.keys() or not {"uri", "content"} & document.keys():
        accepted = False
    assert validator(OCR_REQUEST_FILE).is_valid(request) == accepted
