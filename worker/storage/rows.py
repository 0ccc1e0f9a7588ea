"""CSV and JSON Lines as tables: every column a string, every line that can be told apart a row.

Neither format has a footer, so one pass, `scan`, counts the rows, finds the columns and marks where to begin reading;
a plan pins that `Scan`, and workers open the file with it.

What is wrong with one line is that row's error, and its neighbours stay: a CSV record with too many or too few fields,
a JSON line that does not parse or is no object. It is counted as a row, its other columns are null. What makes the
rows themselves uncertain is the file's error: a quote that is never closed or that is followed by text (which line
belongs to which record?), no header, UTF-16, a line beyond 16 MiB. Empty lines are no rows. Bytes that are not UTF-8
are the row's error in a text column and U+FFFD in a column that is passed through, because a string must be Unicode.
"""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import pyarrow as pa

from schemas.errors import ErrorCode
from worker.errors import ColumnError, ItemFailed, OversizedTable, UnreadableTable
from worker.storage.lines import LINE_BYTES_MAX, Lines
from worker.storage.tables import (
    BATCH_ROWS,
    NOT_UTF8,
    Text,
    Texts,
    check_columns,
    check_distinct,
    check_range,
    check_text_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MARK_EVERY_ROWS: Final = 4096
COLUMNS_MAX: Final = 10_000

# A row by column, or why the line is none; object: a JSON value.
Record: TypeAlias = dict[str, object] | ItemFailed

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over a file found.

    Attributes:
        rows: bad ones included.
        columns: the header's, or the keys of all objects by first appearance.
        marks: the byte at which each `MARK_EVERY_ROWS`-th row begins.
    """

    rows: int
    columns: tuple[str, ...]
    marks: tuple[int, ...]


class _RowTable(ABC):
    """Implements `worker.storage.tables.Table` over lines. Not thread-safe.

    Args:
        file: seekable and binary, open as long as this is read.
        name: what errors call it.
        scan: what a scan of the same bytes found; None scans now, which blocks for the whole file.

    Raises:
        UnreadableTable: what makes the rows uncertain; see the module.
        OversizedTable: a line or the number of columns is beyond the limit.
        ColumnError: two columns share a name.
    """

    def __init__(self, file: BinaryIO, name: str, scan: Scan | None = None) -> None:
        self.name = name
        self._file = file
        self.scan = scan or self._scanned()
        self.schema = pa.schema([pa.field(column, pa.string()) for column in self.scan.columns])

    @property
    def rows(self) -> int:
        """Rows of the file, bad ones included."""
        return self.scan.rows

    def texts(self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS) -> Iterator[Texts]:
        """Yield texts as `Table.texts` says."""
        check_text_columns(self, columns)
        check_range(self, start, stop)
        return (
            {column: [_text(record, column) for record in records] for column in columns}
            for records in self._ranged(start, stop, batch_rows)
        )

    def batches(
        self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches as `Table.batches` says; what is no string in JSON becomes its JSON text."""
        check_columns(self, columns)
        check_range(self, start, stop)
        return (_batch(columns, records) for records in self._ranged(start, stop, batch_rows))

    @abstractmethod
    def _scanned(self) -> Scan:
        """Pass over the file once."""

    @abstractmethod
    def _records(self, lines: Lines, columns: Sequence[str]) -> Iterator[Record]:
        """Yield the rows from a line on; after each, `lines.offset` is where the next one begins."""

    def _counted(self, lines: Lines, columns: dict[str, None]) -> Scan:
        """Pass over the rows; columns that they have beyond `columns` are added to it."""
        rows, marks, offset = 0, [], lines.offset
        for record in self._records(lines, tuple(columns)):
            if rows % MARK_EVERY_ROWS == 0:
                marks.append(offset)
            rows, offset = rows + 1, lines.offset
            if not isinstance(record, ItemFailed):
                columns.update(dict.fromkeys(record))
            if len(columns) > COLUMNS_MAX:
                raise OversizedTable(self.name, f"it has more than {COLUMNS_MAX} columns")
        return Scan(rows, tuple(columns), tuple(marks))

    def _ranged(self, start: int, stop: int, batch_rows: int) -> Iterator[list[Record]]:
        if start == stop:
            return
        mark = start // MARK_EVERY_ROWS
        records = self._records(Lines(self._file, self.name, self.scan.marks[mark]), self.scan.columns)
        wanted = islice(records, start - mark * MARK_EVERY_ROWS, stop - mark * MARK_EVERY_ROWS)
        left = stop - start
        while batch := list(islice(wanted, batch_rows)):
            left -= len(batch)
            yield batch
        if left:
            raise UnreadableTable(self.name, f"it ends {left} rows early: it is not the file that was scanned")


class CsvTable(_RowTable):
    """CSV with a header: commas, double quotes, line ends inside of quotes; an empty field is an empty string."""

    def _scanned(self) -> Scan:
        lines = Lines(self._file, self.name)
        header = next(self._fields(lines), None)
        if header is None:
            raise UnreadableTable(self.name, "it has no header line")
        check_distinct(self.name, header)
        if any(_SURROGATE.search(column) for column in header):
            raise UnreadableTable(self.name, "its header is not UTF-8; convert the file")
        return self._counted(lines, dict.fromkeys(header))

    def _records(self, lines: Lines, columns: Sequence[str]) -> Iterator[Record]:
        for fields in self._fields(lines):
            if len(fields) == len(columns):
                yield dict(zip(columns, fields, strict=True))
            else:
                text = f"the record has {len(fields)} fields, the header {len(columns)}"
                yield ItemFailed(ErrorCode.UNREADABLE_ROW, text)

    def _fields(self, lines: Lines) -> Iterator[list[str]]:
        # The interpreter's limit of 128 KiB holds for all of it; a ticket with a log in it is longer.
        csv.field_size_limit(LINE_BYTES_MAX)
        decoded = (line.decode("utf-8", "surrogateescape") for line in lines)
        try:
            yield from filter(None, csv.reader(decoded, strict=True))
        except csv.Error as error:
            text = f"from byte {lines.offset} on, its records cannot be told apart: {error}"
            raise UnreadableTable(self.name, text) from None


class JsonlTable(_RowTable):
    """JSON Lines: an object a line; a key that it lacks is null."""

    def _scanned(self) -> Scan:
        scan = self._counted(Lines(self._file, self.name), {})
        lone = next((column for column in scan.columns if _SURROGATE.search(column)), None)
        if lone is not None:
            raise ColumnError(self.name, ascii(lone), "its name is not Unicode; rename it")
        return scan

    def _records(self, lines: Lines, columns: Sequence[str]) -> Iterator[Record]:  # noqa: ARG002 - each object has its own
        for line in lines:
            if line.strip():
                yield _object(line)


def _object(line: bytes) -> Record:
    try:
        value = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return ItemFailed(ErrorCode.UNREADABLE_ROW, "the line is not valid JSON")
    if not isinstance(value, dict):
        return ItemFailed(ErrorCode.UNREADABLE_ROW, "the line is no JSON object")
    return value


def _batch(columns: Sequence[str], records: Sequence[Record]) -> pa.RecordBatch:
    values = [[_passed(record, column) for record in records] for column in columns]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in values], list(columns))


def _text(record: Record, column: str) -> Text:
    if isinstance(record, ItemFailed):
        return record
    value = record.get(column)
    if value is None:
        return None
    if not isinstance(value, str):
        return ItemFailed(ErrorCode.NOT_TEXT, f"{column} is no string")
    return NOT_UTF8 if not value.isascii() and _SURROGATE.search(value) else value


def _passed(record: Record, column: str) -> str | None:
    value = None if isinstance(record, ItemFailed) else record.get(column)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
