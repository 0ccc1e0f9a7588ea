"""One contract over every format that a bulk run reads."""

import csv
import io
import json
from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import ErrorCode
from worker.errors import ColumnError, TableError
from worker.storage.parquet import ParquetTable
from worker.storage.rows import CsvTable, JsonlTable
from worker.storage.tables import Table

ROWS = 6000
TEXTS = [f'ticket "{row}",\n{row % 7} grün' for row in range(ROWS)]
IDS = [f"{row:05}" for row in range(ROWS)]


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": IDS, "text": TEXTS}), buffer, row_group_size=2500)
    return buffer.getvalue()


def _csv() -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([("id", "text"), *zip(IDS, TEXTS, strict=True)])
    return text.getvalue().encode()


def _jsonl() -> bytes:
    rows = (json.dumps({"id": key, "text": text}) for key, text in zip(IDS, TEXTS, strict=True))
    return "\n".join(rows).encode()


FORMATS = [(ParquetTable, _parquet), (CsvTable, _csv), (JsonlTable, _jsonl)]


@pytest.fixture(params=FORMATS, ids=["parquet", "csv", "jsonl"])
def table(request: pytest.FixtureRequest) -> Table:
    kind, data = request.param
    opened: Table = kind(io.BytesIO(data()), "in")
    return opened


@pytest.mark.parametrize(("start", "stop"), [(0, ROWS), (0, 0), (2499, 2501), (4095, 4097), (5999, 6000), (17, 5000)])
@pytest.mark.parametrize("batch_rows", [7, 1024])
def test_a_range_is_its_rows_in_bounded_batches(table: Table, start: int, stop: int, batch_rows: int) -> None:
    texts = list(table.texts(["text", "id"], start, stop, batch_rows))
    assert [text for batch in texts for text in batch["text"]] == TEXTS[start:stop]
    assert [key for batch in texts for key in batch["id"]] == IDS[start:stop]
    batches = list(table.batches(["id"], start, stop, batch_rows))
    assert [key for batch in batches for key in batch.column("id").to_pylist()] == IDS[start:stop]
    assert {batch.schema.names[0] for batch in batches} <= {"id"}
    assert max([len(batch["text"]) for batch in texts] + [batch.num_rows for batch in batches], default=0) <= batch_rows


def test_it_says_its_rows_and_columns(table: Table) -> None:
    assert (table.name, table.rows, table.schema.names) == ("in", ROWS, ["id", "text"])


def test_two_ranges_may_be_read_in_turns(table: Table) -> None:
    pairs = zip(table.texts(["text"], 0, 3000, 500), table.texts(["text"], 3000, 6000, 500), strict=False)
    first, second = zip(*((one["text"][0], other["text"][0]) for one, other in pairs), strict=True)
    assert (first[0], second[0]) == (TEXTS[0], TEXTS[3000])
    assert first[1] == TEXTS[500]


def test_a_missing_column_is_an_error_before_the_first_row(table: Table) -> None:
    for read in (table.texts, table.batches):
        with pytest.raises(ColumnError, match=r"in: column 'body': .* the columns are id, text") as caught:
            read(["body"], 0, 1)
        assert caught.value.code is ErrorCode.UNKNOWN_COLUMN


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, ROWS + 1)])
def test_a_range_that_is_not_there_is_an_error_before_the_first_row(table: Table, start: int, stop: int) -> None:
    for read in (table.texts, table.batches):
        with pytest.raises(ValueError, match=f"in has {ROWS} rows"):
            read(["id"], start, stop)


@pytest.mark.parametrize(("kind", "data"), FORMATS, ids=["parquet", "csv", "jsonl"])
def test_a_file_that_loses_its_end_while_it_is_read_is_no_short_table(
    kind: Callable[[BinaryIO, str], Table], data: Callable[[], bytes]
) -> None:
    file = io.BytesIO(data())
    table = kind(file, "in")
    file.truncate(len(file.getvalue()) // 3)
    with pytest.raises(TableError):
        list(table.texts(["text"], 0, ROWS))


@pytest.mark.parametrize(("kind", "data"), FORMATS, ids=["parquet", "csv", "jsonl"])
def test_what_the_file_raises_is_not_taken_for_damage(
    kind: Callable[[BinaryIO, str], Table], data: Callable[[], bytes]
) -> None:
    class Flaky(io.BytesIO):
        fails = False

        def read(self, size: int | None = -1) -> bytes:
            if self.fails:
                raise ConnectionError("try later")
            return super().read(size)

    file = Flaky(data())
    table = kind(file, "in")
    file.fails = True
    with pytest.raises(ConnectionError):
        list(table.texts(["text"], 0, ROWS))
