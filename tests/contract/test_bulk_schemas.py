"""The contract of bulk runs: which requests are taken, how a wrong one is refused, and that documents hold together."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from schemas import bulk_examples
from schemas.asyncapi import BULK_OCR_REQUEST_FILE, BULK_REQUEST_FILE, BULK_RESULT_FILE
from schemas.bulk import BulkAnswer, BulkClassify, BulkShard, parse_bulk_classify, parse_bulk_shard
from schemas.bulk_manifest import SCORE_BINS, BulkManifest, PageTally, PartRecord, Tally
from schemas.bulk_ocr import BulkOcr, parse_bulk_ocr
from schemas.bulk_plan import BulkPlan
from schemas.errors import ErrorCode, MessageError
from schemas.names import (
    PRIORITY_BULK_SHARD,
    QUEUE_BULK,
    QUEUE_BULK_OCR,
    TASK_BULK_CLASSIFY,
    TASK_BULK_OCR,
    TASK_BULK_SHARD,
    Band,
    band_of,
)

COMMITTED = Path(__file__).parents[2] / "schemas" / "json"
REQUEST = {"inputs": ["s3://lake/*.parquet"], "output": "s3://lake/out", "text": "body"}

EXAMPLES = [
    pytest.param(BULK_REQUEST_FILE, BulkClassify, bulk_examples.REQUEST, id="request"),
    pytest.param(BULK_OCR_REQUEST_FILE, BulkOcr, bulk_examples.OCR_REQUEST, id="ocr request"),
    pytest.param(BULK_RESULT_FILE, BulkAnswer, bulk_examples.ANSWER, id="answer"),
    pytest.param("bulk-shard.request.schema.json", BulkShard, bulk_examples.SHARD, id="shard"),
    pytest.param("bulk-plan.schema.json", BulkPlan, bulk_examples.PLAN, id="plan"),
    pytest.param("bulk-part.schema.json", PartRecord, bulk_examples.RECORD, id="part"),
    pytest.param("bulk-manifest.schema.json", BulkManifest, bulk_examples.MANIFEST, id="manifest"),
]


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((COMMITTED / name).read_bytes()))


@pytest.mark.parametrize(("file", "model", "example"), EXAMPLES)
def test_an_example_is_right_for_its_schema_and_reads_back_as_it_was(
    file: str, model: type[BaseModel], example: BaseModel
) -> None:
    validator(file).validate(bulk_examples.example(example))
    validator(file).validate(json.loads(example.model_dump_json()))
    assert model.model_validate_json(example.model_dump_json()) == example


@pytest.mark.parametrize(("file", "model", "example"), EXAMPLES)
def test_an_unknown_field_is_an_error_everywhere(file: str, model: type[BaseModel], example: BaseModel) -> None:
    document = {**json.loads(example.model_dump_json()), "colour": "red"}
    assert not validator(file).is_valid(document)
    with pytest.raises(ValidationError, match="colour") as error:
        model.model_validate_json(json.dumps(document))
    assert "red" not in str(error.value)


def test_names_are_those_of_the_contract_and_shards_are_bulk_work() -> None:
    assert (TASK_BULK_CLASSIFY, TASK_BULK_SHARD, QUEUE_BULK) == ("bulk.classify", "bulk.shard", "bulk")
    assert (TASK_BULK_OCR, QUEUE_BULK_OCR) == ("bulk.ocr", "bulk-ocr")
    assert band_of(PRIORITY_BULK_SHARD) is Band.BULK


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        pytest.param({"colour": "red"}, ErrorCode.UNKNOWN_FIELD, "colour: there is no such field", id="unknown"),
        pytest.param({"inputs": []}, ErrorCode.NO_INPUTS, "inputs: a run needs at least one input", id="no inputs"),
        pytest.param({"inputs": ["x"] * 1001}, ErrorCode.INVALID_MESSAGE, "use a glob", id="too many inputs"),
        pytest.param({"inputs": "x"}, ErrorCode.INVALID_MESSAGE, "inputs: must be a list", id="one input"),
        pytest.param({"inputs": [7]}, ErrorCode.INVALID_MESSAGE, "inputs[0]: ", id="number"),
        pytest.param({"text": None}, ErrorCode.INVALID_MESSAGE, "give either text, or subject", id="no text"),
        pytest.param({"body": "b"}, ErrorCode.INVALID_MESSAGE, "give either text, or subject", id="two kinds"),
        pytest.param({"compression": "lzo"}, ErrorCode.INVALID_MESSAGE, "compression: ", id="compression"),
        pytest.param({"column_prefix": "a b"}, ErrorCode.INVALID_MESSAGE, "column_prefix: ", id="prefix"),
        pytest.param({"max_rejection_rate": 2.0}, ErrorCode.INVALID_MESSAGE, "max_rejection_rate: ", id="rate"),
        pytest.param({"strict": "true"}, ErrorCode.INVALID_MESSAGE, "strict: ", id="text for a boolean"),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(MessageError) as refusal:
        parse_bulk_classify((), REQUEST | change)
    assert refusal.value.code is code
    assert text in str(refusal.value)
    assert "red" not in str(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("parse", [parse_bulk_classify, parse_bulk_ocr, parse_bulk_shard])
def test_arguments_by_position_are_refused(parse: Callable[..., object]) -> None:
    with pytest.raises(MessageError, match="by keyword"):
        parse(("s3://lake",), {})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(MessageError, match="output: this field is required"):
        parse_bulk_classify((), {"inputs": ["x"], "text": "t"})


@pytest.mark.parametrize(
    "columns", [{"text": "t"}, {"subject": "s"}, {"body": "b"}, {"subject": "s", "body": "b"}], ids=str
)
def test_a_text_is_one_column_or_a_subject_with_a_body(columns: dict[str, str]) -> None:
    parsed = parse_bulk_classify((), {"inputs": ["x"], "output": "y", **columns})
    assert {name: getattr(parsed, name) for name in columns} == columns


def test_a_shards_message_says_nothing_that_could_contradict_its_plan() -> None:
    assert set(BulkShard.model_fields) == {"plan", "plan_key", "shard", "schema_version"}
    assert parse_bulk_shard((), bulk_examples.SHARD.model_dump()) == bulk_examples.SHARD
    with pytest.raises(MessageError, match=r"unknown_field: rows: .* the fields are plan, plan_key, shard"):
        parse_bulk_shard((), bulk_examples.SHARD.model_dump() | {"rows": 7})


options = st.none() | st.booleans() | st.integers(-2, 200) | st.floats(allow_nan=False) | st.just("zstd")
no_floats = options.filter(lambda value: not isinstance(value, float))  # JSON knows no 1.0 beside 1
columns = st.none() | st.sampled_from(["", "a column"])
requests = st.fixed_dictionaries(
    {"inputs": st.lists(st.sampled_from(["a", ""]), max_size=2), "output": st.sampled_from(["b", ""])},
    optional={
        **dict.fromkeys(("text", "subject", "body", "id"), columns),
        **dict.fromkeys(("top_k", "shard_rows", "row_group_rows", "schema_version"), no_floats),
        **dict.fromkeys(("dedupe", "strict", "threshold", "max_rejection_rate", "compression", "other"), options),
        "column_prefix": st.sampled_from(["", "bm_", "a b", "é"]),
    },
)


@given(requests)
@settings(deadline=None)
def test_the_schema_and_the_worker_accept_the_same_requests(request: dict[str, object]) -> None:
    try:
        parse_bulk_classify((), request)
    except MessageError:
        accepted = False
    else:
        accepted = True
    assert validator(BULK_REQUEST_FILE).is_valid(request) == accepted


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        pytest.param({"text": "body"}, ErrorCode.UNKNOWN_FIELD, "text: there is no such field", id="a column of text"),
        pytest.param({"inputs": []}, ErrorCode.NO_INPUTS, "at least one input", id="no inputs"),
        pytest.param({"content": "c"}, ErrorCode.INVALID_MESSAGE, "give either uri or content", id="two sources"),
        pytest.param({"uri": None, "id": "key"}, ErrorCode.INVALID_MESSAGE, "id names a column", id="id of no table"),
        pytest.param({"first_page": 3, "last_page": 2}, ErrorCode.INVALID_MESSAGE, "last_page comes", id="no page"),
        pytest.param({"first_page": 0}, ErrorCode.INVALID_MESSAGE, "first_page: ", id="page 0"),
    ],
)
def test_a_wrong_request_for_documents_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], code: ErrorCode, text: str
) -> None:
    with pytest.raises(MessageError) as refusal:
        parse_bulk_ocr((), {"inputs": ["x"], "output": "y", "uri": "scan"} | change)
    assert refusal.value.code is code
    assert text in str(refusal.value)


document_requests = st.fixed_dictionaries(
    {"inputs": st.lists(st.sampled_from(["a", ""]), max_size=2), "output": st.sampled_from(["b", ""])},
    optional={
        **dict.fromkeys(("uri", "content", "id"), columns),
        **dict.fromkeys(("first_page", "shard_rows", "row_group_rows", "schema_version"), no_floats),
        **dict.fromkeys(("strict", "max_rejection_rate", "compression", "text"), options),
        "column_prefix": st.sampled_from(["", "ocr_", "a b", "é"]),
    },
)


@given(document_requests)
@settings(deadline=None)
def test_the_schema_and_the_worker_accept_the_same_requests_for_documents(request: dict[str, object]) -> None:
    try:
        parse_bulk_ocr((), request)
    except MessageError:
        accepted = False
    else:
        accepted = True
    assert validator(BULK_OCR_REQUEST_FILE).is_valid(request) == accepted


@given(requests | document_requests)
@settings(deadline=None)
def test_no_request_is_right_for_both_kinds_of_run(request: dict[str, object]) -> None:
    files = (BULK_REQUEST_FILE, BULK_OCR_REQUEST_FILE)
    assert sum(validator(file).is_valid(request) for file in files) <= 1


def plan_with(shards: list[tuple[int, int, int]], rows: tuple[int, ...] = (100, 0, 50)) -> BulkPlan:
    document = json.loads(bulk_examples.PLAN.model_dump_json())
    (file,) = document["inputs"]
    document["inputs"] = [file | {"uri": f"{index}.parquet", "rows": count} for index, count in enumerate(rows)]
    document["shards"] = [dict(zip(("file", "start", "stop"), shard, strict=True)) for shard in shards]
    return BulkPlan.model_validate_json(json.dumps(document))


def test_a_plan_may_step_over_a_file_without_rows() -> None:
    assert plan_with([(0, 0, 60), (0, 60, 100), (2, 0, 50)]).rows == 150


@pytest.mark.parametrize(
    "shards",
    [
        pytest.param([(0, 0, 100)], id="a file is missing"),
        pytest.param([(0, 0, 60), (2, 0, 50)], id="rows are missing"),
        pytest.param([(0, 0, 100), (0, 60, 100), (2, 0, 50)], id="rows are twice"),
        pytest.param([(2, 0, 50), (0, 0, 100)], id="files out of order"),
        pytest.param([(0, 60, 100), (0, 0, 60), (2, 0, 50)], id="rows out of order"),
        pytest.param([(0, 0, 101), (2, 0, 49)], id="more rows than the file"),
        pytest.param([(0, 0, 100), (3, 0, 50)], id="no such file"),
        pytest.param([(0, 0, 100), (2, 0, 60), (2, 60, 50)], id="backwards"),
        pytest.param([], id="no shards"),
    ],
)
def test_a_plan_that_does_not_hold_every_row_once_in_order_cannot_be_read(shards: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValidationError, match="inconsistent_plan"):
        plan_with(shards)


def test_a_plan_that_labels_rows_says_how_they_are_batched() -> None:
    fields = bulk_examples.PLAN.model_dump(mode="json", exclude={"limits"})
    with pytest.raises(ValidationError, match="inconsistent_plan"):
        BulkPlan.model_validate_json(json.dumps(fields))

    fields["request"] = {"inputs": ["s3://lake/scans.parquet"], "output": "s3://lake/out", "content": "scan"}
    assert BulkPlan.model_validate_json(json.dumps(fields)).limits is None


@pytest.mark.parametrize("shards", [[], [(0, 0, 0)]])
def test_a_run_without_rows_has_a_plan(shards: list[tuple[int, int, int]]) -> None:
    assert plan_with(shards, rows=(0, 0)).rows == 0


def test_a_night_without_new_files_has_a_plan() -> None:
    assert plan_with([], rows=()).rows == 0


def test_a_plan_carries_its_arrow_schema_as_bytes() -> None:
    schema = bytes(range(256))
    plan = bulk_examples.PLAN.model_copy(update={"arrow_schema": schema})
    assert BulkPlan.model_validate_json(plan.model_dump_json()).arrow_schema == schema


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({"rows": 1}, id="a row without an outcome"),
        pytest.param({"rows": 1, "labelled": 1}, id="no label"),
        pytest.param({"rows": 1, "labelled": 1, "labels": {"a": 1}}, id="no score"),
        pytest.param({"rows": 1, "unlabelled": 1, "truncated": 2}, id="more truncated than rows"),
        pytest.param({"scores": [0] * (SCORE_BINS - 1)}, id="too few bins"),
    ],
)
def test_a_tally_that_does_not_add_up_cannot_be_made(counts: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Tally(**counts)


def test_a_manifest_whose_parts_lack_rows_cannot_be_read() -> None:
    document = json.loads(bulk_examples.MANIFEST.model_dump_json())
    del document["parts"][-1]
    with pytest.raises(ValidationError, match="the same number of rows"):
        BulkManifest.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({"rows": 3, "documents": 2, "pages": 2}, id="a row that is neither read nor wrong"),
        pytest.param({"rows": 2, "documents": 2, "pages": 2, "blank": 1}, id="a page without a confidence"),
        pytest.param({"rows": 1, "documents": 2, "pages": 1, "blank": 1}, id="a document without a row"),
    ],
)
def test_counts_of_pages_add_up(counts: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="every"):
        PageTally(**counts)


def test_a_part_and_a_manifest_of_pages_read_back_as_such() -> None:
    tally = PageTally(rows=3, documents=2, pages=2, blank=2, errors={ErrorCode.DAMAGED_DOCUMENT: 1})
    record = bulk_examples.RECORD.model_copy(update={"tally": tally, "rejects_sha256": "0" * 64})
    assert PartRecord.model_validate_json(record.model_dump_json()) == record

    document = json.loads(bulk_examples.MANIFEST.model_dump_json())
    document |= {"totals": tally.model_dump(mode="json"), "parts": [document["parts"][0] | {"rows": 3}]}
    document["inputs"] = [document["inputs"][0] | {"rows": 2}]
    assert BulkManifest.model_validate_json(json.dumps(document)).totals == tally
    with pytest.raises(ValidationError, match="the same number of rows"):
        BulkManifest.model_validate_json(json.dumps(document | {"inputs": []}))
