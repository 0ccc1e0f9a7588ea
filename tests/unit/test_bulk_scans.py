"""A run that reads documents is planned from its inputs alone: its columns, and a cut by an estimate of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import BulkPlan
from schemas.errors import ErrorCode
from schemas.names import QUEUE_BULK, QUEUE_BULK_OCR
from tasks.bulk.columns import part_schema, rejects_schema
from tasks.bulk.planning import cut_sizes
from tasks.bulk.scans import Speed, shard_policy
from tasks.bulk.sending import queue_of
from tests.lakes import Lake
from tests.scans import OURS, Scans, cuts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def scans(tmp_path: Path) -> Scans:
    return Scans(tmp_path)


# tables


def test_a_table_of_addresses_is_cut_by_rows_and_keeps_only_the_id(scans: Scans) -> None:
    columns = {"key": pa.array(range(10), pa.int32()), "scan": [f"s3://a/{row}" for row in range(10)], "more": [1] * 10}
    uri = scans.table(columns, row_group_size=4)

    plan = scans.plan(inputs=[uri], uri="scan", id="key", shard_rows=4).plan

    assert [(file.uri, file.rows) for file in plan.inputs] == [(uri, 10)]
    assert cuts(plan) == [(0, 0, 4), (0, 4, 8), (0, 8, 10)]  # at the ends of row groups
    assert [(column.name, column.type) for column in plan.columns][:4] == [
        ("key", "int32"),
        ("file", "string"),
        ("row", "int64"),
        ("uri", "string"),
    ]
    assert part_schema(plan).schema.names == ["key", "file", "row", "uri", *OURS]
    assert rejects_schema(plan).schema.names == ["key", "file", "row", "page", "error_code"]


def test_ids_of_files_that_differ_are_unified_and_no_other_column_matters(scans: Scans) -> None:
    first = scans.table({"key": pa.array([1], pa.int32()), "scan": ["a"], "more": [1]}, "1.parquet")
    second = scans.table({"key": pa.array([2], pa.int64()), "scan": ["b"], "more": ["x"]}, "2.parquet")

    plan = scans.plan(inputs=[first, second], content="scan", id="key").plan

    assert [(column.name, column.type) for column in plan.columns][:3] == [
        ("key", "int64"),
        ("file", "string"),
        ("row", "int64"),
    ]
    assert "uri" not in [column.name for column in plan.columns]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        pytest.param({"uri": "gone"}, ErrorCode.UNKNOWN_COLUMN, "column 'gone'", id="no such column"),
        pytest.param({"uri": "number"}, ErrorCode.SCHEMA_MISMATCH, "int64, not text", id="no text"),
        pytest.param({"uri": "scan", "id": "gone"}, ErrorCode.UNKNOWN_COLUMN, "column 'gone'", id="no id"),
        pytest.param({"uri": "scan", "id": "text"}, ErrorCode.COLUMN_EXISTS, "column_prefix", id="a result's name"),
    ],
)
def test_a_wrong_table_is_named_before_a_document_is_opened(
    scans: Scans, fields: dict[str, str], code: ErrorCode, words: str
) -> None:
    uri = scans.table({"scan": ["a"], "number": [1], "text": ["x"]})
    refused = scans.refusal(inputs=[uri], **fields)

    assert refused.code is code
    assert words in str(refused)
    assert scans.measured == []
    assert scans.plan(inputs=[uri], uri="scan", id="text", column_prefix="ocr_").plan.rows == 1


def test_a_table_without_rows_has_a_part_with_the_columns(scans: Scans) -> None:
    uri = scans.table({"scan": pa.array([], pa.string())})

    plan = scans.plan(inputs=[uri], uri="scan").plan

    assert (cuts(plan), scans.measured) == ([(0, 0, 0)], [])


def test_a_plan_says_nothing_of_batches_that_make_no_difference(scans: Scans) -> None:
    scans.write("a.png")

    assert scans.plan().plan.limits is None


# shards


@pytest.mark.parametrize(
    ("documents_per_s", "asked", "most"),
    [
        pytest.param(1.0, None, 16, id="half a minute's documents, down to a power of two"),
        pytest.param(0.001, None, 1, id="a document that takes longer is a shard"),
        pytest.param(10.0, 20, 20, id="fewer where asked for"),
        pytest.param(0.1, 1_000, 2, id="never more than a minute's, whatever is asked for"),
    ],
)
def test_a_shard_has_a_minutes_documents_with_a_margin(
    scans: Scans, documents_per_s: float, asked: int | None, most: int
) -> None:
    assert shard_policy(Speed(documents_per_s, None), scans.request(shard_rows=asked)).shard_rows == most


def test_large_documents_make_shards_of_fewer(scans: Scans) -> None:
    scans.write(*(f"a{number}.png" for number in range(8)), content=b"x" * 100)
    scans.write(*(f"b{number}.png" for number in range(4)), content=b"x" * 300)
    scans.write("c.png", content=b"x" * 10_000)
    scans.write("d.png", content=b"x")
    scans.speed = Speed(8 * 2 / 60 + 0.01, 100.0)

    assert [stop - start for _, start, stop in cuts(scans.plan().plan)] == [8, 2, 2, 1, 1]


@given(
    sizes=st.lists(st.integers(0, 100), max_size=40),
    most_rows=st.integers(1, 10),
    most_bytes=st.floats(0, 300),
)
def test_a_cut_has_every_document_once_within_the_limits(sizes: list[int], most_rows: int, most_bytes: float) -> None:
    shards = cut_sizes(sizes, most_rows, most_bytes)

    assert [row for shard in shards for row in range(shard.start, shard.stop)] == list(range(len(sizes)))
    for shard in shards:
        assert 1 <= shard.rows <= most_rows
        assert shard.rows == 1 or sum(sizes[shard.start : shard.stop]) <= most_bytes


# what follows from the kind of run


def test_a_run_has_the_queue_of_those_who_can_do_its_work(scans: Scans) -> None:
    lake = Lake(scans.root)
    assert queue_of(scans.request()) == QUEUE_BULK_OCR
    assert queue_of(lake.request()) == QUEUE_BULK


def test_a_plan_reads_back_as_the_run_that_it_is_of(scans: Scans) -> None:
    scans.write("1.png")
    plan = scans.plan(last_page=3).plan

    again = BulkPlan.model_validate_json(plan.model_dump_json())

    assert again == plan
    assert isinstance(again.request, BulkOcr)
