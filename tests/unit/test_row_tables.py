import io
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from schemas.errors import ErrorCode
from worker.errors import ColumnError, ItemFailed, OversizedTable, UnreadableTable
from worker.storage import lines
from worker.storage.rows import MARK_EVERY_ROWS, CsvTable, JsonlTable, Scan
from worker.storage.tables import Table, Text

Opened: TypeAlias = Callable[..., CsvTable | JsonlTable]


def csv_table(data: bytes, scan: Scan | None = None) -> CsvTable:
    return CsvTable(io.BytesIO(data), "in.csv", scan)


def jsonl_table(data: bytes, scan: Scan | None = None) -> JsonlTable:
    return JsonlTable(io.BytesIO(data), "in.jsonl", scan)


def texts_of(table: Table, column: str = "text") -> list[Text]:
    return [text for batch in table.texts([column], 0, table.rows, 2) for text in batch[column]]


def passed(table: Table) -> list[dict[str, Any]]:
    return pa.Table.from_batches(table.batches(table.schema.names, 0, table.rows, 2), table.schema).to_pylist()


def test_csv_is_read_as_strings_with_quotes_commas_and_line_ends_inside() -> None:
    table = csv_table(b'id,text\r\n1,"a ""b"", c"\r\n02,"two\nlines"\r\n3,\n4,plain')
    assert (table.rows, table.schema.names) == (4, ["id", "text"])
    assert texts_of(table) == ['a "b", c', "two\nlines", "", "plain"]
    assert passed(table)[1] == {"id": "02", "text": "two\nlines"}


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert csv_table(b"\xef\xbb\xbftext\nhi\n").schema.names == ["text"]
    assert texts_of(jsonl_table(b'\xef\xbb\xbf{"text": "hi"}\n')) == ["hi"]


@pytest.mark.parametrize("opened", [csv_table, jsonl_table])
def test_utf16_is_refused_with_the_remedy(opened: Opened) -> None:
    with pytest.raises(UnreadableTable, match="UTF-16; convert it to UTF-8"):
        opened("text\nhi\n".encode("utf-16"))


def test_a_csv_record_with_other_fields_than_the_header_is_its_own_error() -> None:
    table = csv_table(b"id,text\n1,a\n2\n3,b,c\n4,d\n")
    first, short, long, last = texts_of(table)
    assert (first, last) == ("a", "d")
    assert isinstance(short, ItemFailed)
    assert short.message == "the record has 1 fields, the header 2"
    assert isinstance(long, ItemFailed)
    assert [row["id"] for row in passed(table)] == ["1", None, None, "4"]


def test_bytes_that_are_not_utf8_are_the_rows_error_and_a_replacement_when_passed() -> None:
    for table in (csv_table(b"text\ncaf\xe9\nfine\n"), jsonl_table(b'{"text": "caf\xe9"}\n{"text": "fine"}\n')):
        bad, fine = texts_of(table)
        assert isinstance(bad, ItemFailed)
        assert bad.code is ErrorCode.INVALID_UNICODE
        assert fine == "fine"
        assert passed(table)[0] == {"text": "caf\ufffd"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no header"),
        (b"\n\n", "no header"),
        (b'text\n"never closed\nb\n', "cannot be told apart"),
        (b'text\n"closed" and more\n', "cannot be told apart"),
        (b"t\xe9xt\na\n", "header is not UTF-8"),
    ],
)
def test_csv_whose_rows_are_uncertain_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableTable, match=rf"in\.csv: .*{reason}"):
        csv_table(data)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ColumnError, match=r"in\.csv: column 'text': two columns"):
        csv_table(b"text,text\na,b\n")


def test_a_column_that_is_not_there_is_an_error_that_names_the_others() -> None:
    with pytest.raises(ColumnError, match="the columns are id, subject"):
        csv_table(b"id,subject\n1,a\n").texts(["text"], 0, 1)


def test_json_lines_have_the_keys_of_all_objects_and_null_where_one_is_missing() -> None:
    table = jsonl_table(b'{"text": "a", "n": 1.50}\n\n{"text": null, "tags": ["x", {"y": true}]}\n{}\n')
    assert (table.rows, table.schema.names) == (3, ["text", "n", "tags"])
    assert texts_of(table) == ["a", None, None]
    assert passed(table) == [
        {"text": "a", "n": "1.5", "tags": None},
        {"text": None, "n": None, "tags": '["x",{"y":true}]'},
        {"text": None, "n": None, "tags": None},
    ]


@pytest.mark.parametrize(
    "line",
    [b"broken", b'{"text": "a"', b'["a"]', b'"a"', b"null", b'{"text": 5}', b'{"text": ["a"]}', b"[" * 100_000],
    ids=lambda line: line[:12].decode(),
)
def test_a_json_line_without_text_is_its_own_error(line: bytes) -> None:
    table = jsonl_table(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    before, bad, after = texts_of(table)
    assert (before, after) == ("before", "after")
    assert isinstance(bad, ItemFailed)
    is_object = line.startswith(b"{") and line.endswith(b"}")
    assert bad.code is (ErrorCode.NOT_TEXT if is_object else ErrorCode.UNREADABLE_ROW)


def test_a_lone_surrogate_in_json_is_the_rows_error() -> None:
    table = jsonl_table(b'{"text": "\\ud800"}\n')
    (text,) = texts_of(table)
    assert isinstance(text, ItemFailed)
    assert text.code is ErrorCode.INVALID_UNICODE
    assert passed(table) == [{"text": "\ufffd"}]


def test_a_line_beyond_the_limit_is_refused_without_being_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(lines, "_READ_BYTES", 64)
    assert texts_of(csv_table(b"text\n" + b"a" * 900)) == ["a" * 900]
    with pytest.raises(OversizedTable, match=r"in\.csv: the line at byte 5 is longer than 1000 bytes"):
        csv_table(b"text\n" + b"a" * 5000)


def test_a_text_beyond_the_csv_modules_own_limit_is_read() -> None:
    text = "word " * 60_000
    assert texts_of(csv_table(f'text\n"{text}"\n'.encode())) == [text]


def _many(rows: int) -> list[tuple[Opened, bytes]]:
    csv_data = "text,n\n" + "".join(f'"ticket\n{row}",{row}\n' for row in range(rows))
    jsonl_data = "".join(f'{{"text": "ticket\\n{row}", "n": {row}}}\n' for row in range(rows))
    return [(csv_table, csv_data.encode()), (jsonl_table, jsonl_data.encode())]


@pytest.mark.parametrize("index", [0, 1], ids=["csv", "jsonl"])
def test_a_range_starts_near_its_first_row_with_the_scan_of_the_plan(index: int) -> None:
    rows = 3 * MARK_EVERY_ROWS + 10
    opened, data = _many(rows)[index]
    scan = opened(data).scan
    assert (scan.rows, scan.columns, len(scan.marks)) == (rows, ("text", "n"), 4)
    reopened = opened(data, Scan(**asdict(scan)))
    for start, stop in [
        (0, 3),
        (MARK_EVERY_ROWS - 1, MARK_EVERY_ROWS + 2),
        (rows - 5, rows),
        (rows, rows),
        (9000, 9001),
    ]:
        found = [text for batch in reopened.texts(["text"], start, stop, 100) for text in batch["text"]]
        assert found == [f"ticket\n{row}" for row in range(start, stop)]
        numbers = [n for batch in reopened.batches(["n"], start, stop, 100) for n in batch.column("n").to_pylist()]
        assert numbers == [str(row) for row in range(start, stop)]


def test_two_ranges_of_one_file_may_be_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_READ_BYTES", 64)
    table = csv_table(_many(200)[0][1])
    both = zip(table.texts(["text"], 0, 100, 1), table.texts(["text"], 100, 200, 1), strict=True)
    for row, (first, second) in enumerate(both):
        assert (first["text"], second["text"]) == ([f"ticket\n{row}"], [f"ticket\n{row + 100}"])


def test_a_file_that_is_shorter_than_its_scan_is_not_read_as_if_whole() -> None:
    scan = csv_table(b"text\na\nb\n").scan
    with pytest.raises(UnreadableTable, match="ends 1 rows early"):
        list(csv_table(b"text\na\n", scan).texts(["text"], 0, 2))


def test_files_without_rows_are_tables_without_rows() -> None:
    for table in (csv_table(b"text\n"), jsonl_table(b"")):
        assert table.rows == 0
        assert list(table.batches(["text"], 0, 0)) == []
