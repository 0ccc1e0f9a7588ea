"""Reads a finished part to its last page, to see whether it is sound and what its columns really hold.

Every page of every column is decoded and its checksum verified, in the memory that `worker.storage.parquet` states; of
what is read only the columns asked for are returned. It does not know what they mean.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.storage.parquet import ParquetTable
    from worker.storage.tables import Schema


def values_of(table: ParquetTable, columns: Sequence[str]) -> Iterator[dict[str, list[Any]]]:  # Any: as the column is
    """Yield the values of `columns` by name, batch by batch, while all columns are decoded. Blocks on the file.

    Raises:
        ColumnError: at once: a column is missing.
        UnreadableTable: the content is damaged.
    """
    everything = table.batches(list(dict.fromkeys([*table.schema.names, *columns])), 0, table.rows)
    return ({column: batch.column(column).to_pylist() for column in columns} for batch in everything)


def first_difference(found: Schema, expected: Schema) -> str | None:
    """Return the first column in which a schema differs from the one expected, None if none does.

    Names, order, types and nullability count; metadata does not, nor does what a list calls its elements.
    """
    for is_, should in zip_longest(found, expected):
        if is_ is None or should is None or not is_.equals(should):
            return f"{_described(is_)} instead of {_described(should)}"
    return None


def _described(field: Any) -> str:  # noqa: ANN401 - an Arrow field, or None
    if field is None:
        return "no more columns"
    return f"column {field.name!r} of {field.type}{'' if field.nullable else ', never null'}"
