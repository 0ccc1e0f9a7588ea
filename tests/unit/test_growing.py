"""Rows that come of rows: each behind the columns of the one that it came of, whatever their number."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.storage.growing import Grown, write_grown
from worker.storage.labelling import Kind, PartSchema, ResultColumn, Span
from worker.storage.parquet import ParquetTable

if TYPE_CHECKING:
    from pathlib import Path

RESULTS = (ResultColumn("page", Kind.COUNT), ResultColumn("text", Kind.TEXT), ResultColumn("error_code", Kind.TEXT))
LINES = ResultColumn("lines", Kind.LINES)


def form(inputs: pa.Schema, results: tuple[ResultColumn, ...] = RESULTS) -> PartSchema:
    return PartSchema(inputs, results, "x_", {"made": "by us"}, row_group_rows=1_000)


def span(path: Path, rows: int, start: int = 0) -> Span:
    pq.write_table(pa.table({"id": [f"D-{row}" for row in range(rows)], "other": [b"x"] * rows}), path)
    table = ParquetTable(io.BytesIO(path.read_bytes()), "in.parquet")
    return Span(table, start, rows)


def grown(counts: list[int]) -> Grown:
    made = Grown(RESULTS)
    for owner, count in enumerate(counts):
        made.add(owner, [{"page": page, "text": f"{owner}/{page}"} for page in range(count)])
    return made


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_each_row_stands_behind_the_columns_of_its_owner(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("grown")
    rows = span(directory / "in", len(counts) + 3, start=3)

    part = write_grown(directory / "out", rows, grown(counts), form(pa.schema([("id", pa.string())])))

    written = pq.read_table(directory / "out")
    assert part.rows == written.num_rows == sum(counts)
    assert written.to_pylist() == [
        {"id": f"D-{owner + 3}", "x_page": page, "x_text": f"{owner}/{page}", "x_error_code": None}
        for owner, count in enumerate(counts)
        for page in range(count)
    ]
    assert written.schema.metadata[b"made"] == b"by us"


def test_more_rows_than_a_batch_of_many_owners_come_out_whole(tmp_path: Path) -> None:
    counts = [row % 4 for row in range(3_000)]

    write_grown(tmp_path / "out", span(tmp_path / "in", 3_000), grown(counts), form(pa.schema([("id", pa.string())])))

    file = pq.ParquetFile(tmp_path / "out")
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [1_000] * 4 + [500]
    assert file.read(["id"]).column("id").to_pylist() == [f"D-{row}" for row in range(3_000) for _ in range(row % 4)]


def test_only_rows_with_a_value_are_kept_where_a_column_is_named(tmp_path: Path) -> None:
    made = Grown((*RESULTS, LINES))
    box = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    made.add(0, [{"page": 1, "lines": [{"text": "a", "confidence": 0.5, "box": box}]}, {"error_code": "torn"}])
    made.add(1, [{"error_code": "gone"}, {"page": 2}])
    rejects = form(pa.schema([]), (RESULTS[0], RESULTS[2]))

    part = write_grown(tmp_path / "out", span(tmp_path / "in", 2), made, rejects, where="error_code")

    assert part.rows == 2
    assert pq.read_table(tmp_path / "out").to_pylist() == [
        {"x_page": None, "x_error_code": "torn"},
        {"x_page": None, "x_error_code": "gone"},
    ]
    assert made.table().column("lines").to_pylist()[0] == [{"text": "a", "confidence": 0.5, "box": box}]


def test_no_row_gives_a_file_with_its_columns(tmp_path: Path) -> None:
    write_grown(tmp_path / "out", span(tmp_path / "in", 2), Grown(RESULTS), form(pa.schema([("id", pa.string())])))

    assert pq.read_table(tmp_path / "out").schema.names == ["id", "x_page", "x_text", "x_error_code"]


def test_rows_of_an_earlier_owner_come_too_late() -> None:
    made = grown([1, 1])
    with pytest.raises(ValueError, match="in the order"):
        made.add(0, [{"page": 1}])
