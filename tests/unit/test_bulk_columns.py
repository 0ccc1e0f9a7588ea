"""The form of a run's files follows from its plan, and a part says what it is."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk import RESULT_COLUMNS
from schemas.bulk_examples import PLAN, RECORD, REQUEST
from schemas.bulk_plan import BulkPlan, OutputColumn
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.columns import (
    part_metadata,
    part_schema,
    record_of,
    rejects_schema,
    result_columns,
    text_columns,
    write_rejects,
)
from worker.storage.labelling import PartSchema, Span, write_part
from worker.storage.parquet import ParquetTable
from worker.storage.unify import column_types, schema_to_bytes, unify_schemas

if TYPE_CHECKING:
    from pathlib import Path

FILE = "s3://lake/a.parquet"
INPUTS = pa.schema(
    [("ticket_id", pa.dictionary(pa.int8(), pa.string())), ("subject", pa.string()), ("body", pa.large_string())],
    metadata={"batchmill": "of an earlier run", "origin": "crm"},
)


def plan_of(*, is_multi_label: bool = False, inputs: pa.Schema = INPUTS, **fields: object) -> BulkPlan:
    request = REQUEST.model_copy(update=fields)
    ours = result_columns(request, is_multi_label=is_multi_label)
    schema = PartSchema(inputs, ours, request.column_prefix, {}).schema
    columns = [OutputColumn(name=name, type=kind) for name, kind in column_types(schema)]
    return PLAN.model_copy(
        update={"request": request, "columns": columns, "arrow_schema": schema_to_bytes(schema)},
    )


def span(start: int, stop: int) -> Span:
    ids = pa.array([f"T-{row}" for row in range(10)]).dictionary_encode().cast(INPUTS.field("ticket_id").type)
    secrets = [f"secret {row}" for row in range(10)]
    buffer = io.BytesIO()
    pq.write_table(pa.table([ids, secrets, pa.array(secrets, pa.large_string())], schema=INPUTS), buffer)
    return Span(ParquetTable(buffer, FILE), start, stop)


def test_a_runs_columns_are_those_of_the_contract_in_its_order() -> None:
    def names(*, is_multi_label: bool, top_k: int) -> tuple[str, ...]:
        request = REQUEST.model_copy(update={"top_k": top_k})
        return tuple(column.name for column in result_columns(request, is_multi_label=is_multi_label))

    assert names(is_multi_label=True, top_k=1) == names(is_multi_label=False, top_k=2) == RESULT_COLUMNS
    assert names(is_multi_label=False, top_k=1) == ("label", "score", "truncated", "error_code")


def test_the_columns_of_the_text_are_named_once() -> None:
    assert text_columns(REQUEST) == ("subject", "body")
    assert text_columns(REQUEST.model_copy(update={"subject": "body"})) == ("body",)
    assert text_columns(REQUEST.model_copy(update={"subject": None, "body": None, "text": "t"})) == ("t",)


@pytest.mark.parametrize("is_multi_label", [False, True])
@pytest.mark.parametrize("prefix", ["", "model_"])
def test_the_form_of_the_parts_is_the_one_that_was_planned(prefix: str, *, is_multi_label: bool) -> None:
    plan = plan_of(is_multi_label=is_multi_label, column_prefix=prefix, row_group_rows=7, compression="gzip")
    form = part_schema(plan, {"a": "b"})
    assert form.inputs.equals(INPUTS, check_metadata=True)
    assert form.results == result_columns(plan.request, is_multi_label=is_multi_label)
    assert (form.prefix, form.metadata, form.row_group_rows, form.compression) == (prefix, {"a": "b"}, 7, "gzip")
    assert schema_to_bytes(form.schema) == plan.arrow_schema


@pytest.mark.parametrize("prefix", ["", "model_"])
def test_a_column_of_an_input_that_is_called_scores_is_passed_through(prefix: str) -> None:
    inputs = pa.schema([("scores", pa.list_(pa.int8())), ("model_scores", pa.int8()), ("body", pa.string())])

    form = part_schema(plan_of(inputs=inputs, column_prefix=prefix))

    assert form.inputs.equals(inputs)
    assert [column.name for column in form.results] == ["label", "score", "truncated", "error_code"]


def test_a_plan_without_exact_columns_makes_no_part() -> None:
    with pytest.raises(MessageError, match="Arrow schema") as refused:
        part_schema(PLAN)
    assert refused.value.code is ErrorCode.PLAN_MISSING


def test_a_part_that_was_written_says_which_part_it_is_and_who_made_it(tmp_path: Path) -> None:
    ours = {"label": ["a"] * 4, "score": [0.5] * 4, "truncated": [False] * 4, "error_code": [None] * 4}
    write_part(tmp_path / "part", span(2, 6), ours, part_schema(plan_of(), part_metadata(RECORD)))
    read = pq.read_schema(tmp_path / "part")
    assert record_of(read.metadata) == RECORD
    assert read.metadata[b"batchmill.model.name"] == RECORD.model.name.encode()
    assert read.metadata[b"batchmill.model.version"] == RECORD.model.version.encode()
    assert read.metadata[b"batchmill.model.sha256"] == RECORD.model.sha256.encode()
    assert read.metadata[b"origin"] == b"crm"


@pytest.mark.parametrize("metadata", [None, {}, {b"origin": b"crm"}, {b"batchmill": b"{}"}, INPUTS.metadata])
def test_a_file_of_others_has_no_record(metadata: dict[bytes, bytes] | None) -> None:
    with pytest.raises(ValueError, match=r"record|PartRecord"):
        record_of(metadata)


def test_rejects_name_the_row_and_the_reason_and_never_its_text(tmp_path: Path) -> None:
    errors = [None, ErrorCode.EMPTY_TEXT, None, ErrorCode.NOT_TEXT]
    form = rejects_schema(plan_of(), part_metadata(RECORD))
    part = write_rejects(tmp_path / "rejects", span(3, 7), errors, form)
    assert part.rows == 2
    assert pq.read_table(tmp_path / "rejects").to_pylist() == [
        {"ticket_id": "T-4", "file": FILE, "row": 4, "error_code": "empty_text"},
        {"ticket_id": "T-6", "file": FILE, "row": 6, "error_code": "not_text"},
    ]
    assert b"secret" not in (tmp_path / "rejects").read_bytes()
    metadata = pq.read_schema(tmp_path / "rejects").metadata
    assert record_of(metadata) == RECORD
    assert b"origin" not in metadata


def test_rejects_without_an_id_name_file_and_row_and_keep_the_prefix(tmp_path: Path) -> None:
    form = rejects_schema(plan_of(id=None, column_prefix="x_"))
    write_rejects(tmp_path / "rejects", span(0, 2), [ErrorCode.NULL_TEXT, None], form)
    rows = pq.read_table(tmp_path / "rejects").to_pylist()
    assert rows == [{"x_file": FILE, "x_row": 0, "x_error_code": "null_text"}]
    assert not pq.read_schema(tmp_path / "rejects").metadata


def test_rejects_need_a_word_on_every_row(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="error_code"):
        write_rejects(tmp_path / "rejects", span(0, 2), [None], rejects_schema(plan_of()))


def test_no_files_have_no_columns_in_common() -> None:
    assert unify_schemas([]).equals(pa.schema([]), check_metadata=True)
