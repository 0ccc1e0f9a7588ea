"""What a table is to a bulk run, whatever file holds it: counted rows that are read by ranges, in bounded batches.

`worker.storage.parquet` and `worker.storage.rows` implement it, `worker.storage.parts` writes from it. A range is
read twice: its texts for inference, then, as the part is written, its other columns; so no run holds a whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa

from schemas.errors import ErrorCode
from worker.errors import ColumnError, ItemFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCH_ROWS: Final = 1024

Text: TypeAlias = str | ItemFailed | None
Texts: TypeAlias = dict[str, list[Text]]
Schema: TypeAlias = pa.Schema  # for those who may not import Arrow

NOT_UTF8: Final = ItemFailed(ErrorCode.INVALID_UNICODE, "the bytes are not UTF-8; decode the source correctly")


class Table(Protocol):
    """Rows of one file. Not thread-safe; the file stays the caller's.

    Attributes:
        name: what errors call the file.
        rows: how many there are.
        schema: every column of it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - above

    @property
    def rows(self) -> int: ...  # noqa: D102

    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102

    def texts(self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS) -> Iterator[Texts]:
        """Yield the texts of rows `[start, stop)` in order, at most `batch_rows` at a time.

        Each batch maps every one of `columns` to a text, None for null, or the row's own error. Blocks on the file.

        Raises:
            ColumnError: at once: a column is missing or holds no text.
            UnreadableTable: the content is damaged.
            ValueError: no such range.
        """
        ...

    def batches(
        self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows `[start, stop)` of `columns` in order, at most `batch_rows` at a time. Blocks on the file.

        Raises:
            ColumnError: at once: a column is missing.
            UnreadableTable: the content is damaged.
            ValueError: no such range.
        """
        ...


def check_range(table: Table, start: int, stop: int) -> None:
    """Raise ValueError unless `[start, stop)` lies within the table."""
    if not 0 <= start <= stop <= table.rows:
        raise ValueError(f"{table.name} has {table.rows} rows: there is no range [{start}, {stop})")


def check_columns(table: Table, columns: Sequence[str]) -> None:
    """Raise ColumnError unless every one of `columns` is there; an empty file without a header may lack all."""
    if not table.rows and not table.schema.names:
        return
    missing = next((column for column in columns if column not in table.schema.names), None)
    if missing is not None:
        text = f"there is no such column; the columns are {', '.join(table.schema.names)}"
        raise ColumnError(table.name, missing, text, ErrorCode.UNKNOWN_COLUMN)


def check_text_columns(table: Table, columns: Sequence[str]) -> None:
    """Raise ColumnError unless every one of `columns` is there and may hold text."""
    check_columns(table, columns)
    for field in table.schema:
        column, kind = field.name, field.type
        if column in columns and not may_hold_text(kind):
            raise ColumnError(table.name, column, f"it holds {kind}, not text; cast it or name another column")


def check_distinct(name: str, columns: Sequence[str]) -> None:
    """Raise ColumnError where two columns share a name: nobody could say which is meant."""
    twice = next((column for index, column in enumerate(columns) if column in columns[:index]), None)
    if twice is not None:
        raise ColumnError(name, twice, "two columns have this name; rename one")


def texts_of(column: pa.Array) -> list[Text]:
    """Return a column's rows as texts: null as None, bytes that are not UTF-8 as `NOT_UTF8`.

    Args:
        column: of a type that `check_text_columns` lets pass. Rows of one dictionary entry share one `str`.
    """
    if isinstance(column, pa.DictionaryArray):
        values = texts_of(column.dictionary)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    if not _is_bytes(column.type):
        try:
            return column.to_pylist()  # type: ignore[no-any-return] # pyarrow is untyped here
        except UnicodeDecodeError:
            column = column.cast(pa.large_binary())
    return [None if value is None else _decoded(value) for value in column.to_pylist()]


def _decoded(value: bytes) -> Text:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NOT_UTF8


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def may_hold_text(kind: pa.DataType) -> bool:
    """Say whether a column of this type can be read as texts: strings, bytes, dictionaries of these, or nulls."""
    if pa.types.is_dictionary(kind):
        return may_hold_text(kind.value_type)
    return _is_string(kind) or _is_bytes(kind) or pa.types.is_null(kind)
