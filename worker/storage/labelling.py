"""Joins what the model said to the rows that it said it of: the columns that are ours, and the files with them.

The other columns are read again as a part is written, batch by batch, so a run never holds them. It does not know what
a label means.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from schemas.errors import ErrorCode
from worker.errors import ColumnError
from worker.storage.parts import ROW_GROUP_ROWS, Part, PartWriter
from worker.storage.tables import BATCH_ROWS
from worker.storage.unify import conform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from worker.storage.tables import Table

# By column; Any: what the column's kind says.
Results: TypeAlias = "Mapping[str, Sequence[Any]]"


class Kind(Enum):
    """What a column of ours holds; every kind may be null."""

    TEXT = "text"
    SCORE = "score"
    COUNT = "count"
    FLAG = "flag"
    SCORES = "scores"
    LINES = "lines"


_TYPES: Final = {
    Kind.TEXT: pa.string(),
    Kind.SCORE: pa.float64(),
    Kind.COUNT: pa.int64(),
    Kind.FLAG: pa.bool_(),
    Kind.SCORES: pa.list_(pa.struct([("label", pa.string()), ("score", pa.float64())])),
    Kind.LINES: pa.list_(
        pa.struct([("text", pa.string()), ("confidence", pa.float64()), ("box", pa.list_(pa.list_(pa.float64())))])
    ),
}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of ours; its values are plain, or lists of objects as `_TYPES` has them."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class PartSchema:
    """The columns of every part: those of the inputs, then ours.

    Attributes:
        inputs: as `unify_schemas` gave it, or, of a rejects file, as much of it as names the row.
        results: ours, named without the prefix.
        prefix: before each of our names in the file.
        metadata: key-value pairs for the file.
        row_group_rows: rows of a row group.
        compression: `zstd`, `snappy`, `gzip` or `none`.
    """

    inputs: pa.Schema
    results: tuple[ResultColumn, ...]
    prefix: str
    metadata: Mapping[str, str]
    row_group_rows: int = ROW_GROUP_ROWS
    compression: str = "zstd"

    @property
    def schema(self) -> pa.Schema:
        """What the file holds."""
        ours = [field.with_name(self.prefix + field.name) for field in schema_of(self.results)]
        return pa.schema([*self.inputs, *ours], self.inputs.metadata)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `[start, stop)` of a table."""

    table: Table
    start: int
    stop: int


def schema_of(results: Sequence[ResultColumn]) -> pa.Schema:
    """Return columns of ours as Arrow has them, without a prefix."""
    return pa.schema([(column.name, _TYPES[column.kind]) for column in results])


def inputs_of(schema: pa.Schema, results: Sequence[ResultColumn]) -> pa.Schema:
    """Return the inputs' part of a `PartSchema.schema` that ends in `results`."""
    return pa.schema(list(schema)[: len(schema) - len(results)], schema.metadata)


def check_names(files: Iterable[tuple[str, pa.Schema]], results: Sequence[ResultColumn], prefix: str) -> None:
    """Refuse inputs that have a column of the name of one of ours.

    Raises:
        ColumnError: names the file, the column, and the way out.
    """
    ours = {prefix + column.name for column in results}
    for name, schema in files:
        for column in schema.names:
            if column in ours:
                text = "a result column has this name too; set another prefix for the result columns (column_prefix)"
                raise ColumnError(name, column, text, ErrorCode.COLUMN_EXISTS)


def write_part(
    path: Path, span: Span, results: Results, form: PartSchema, *, only: Sequence[int] | None = None
) -> Part:
    """Write the rows of a span with their results; blocks on both files.

    Args:
        path: see `PartWriter`.
        span: the rows.
        results: of each of `form.results`, by its name without the prefix, a value for every row of the span.
        form: the columns and how they are written.
        only: rows to keep, ascending, counted from the span's first: those of a rejects file. None keeps all.

    Raises:
        ColumnError: a value does not fit the unified schema.
        TableError: the table cannot be read.
        BrokenPart: the file does not read back as written.
        ValueError: a result column is missing, unknown, or of another length than the span.
    """
    _check_results(results, form, span.stop - span.start)
    with PartWriter(path, form.schema, form.metadata, form.row_group_rows, form.compression) as writer:
        at = 0
        for rows, inputs in span_inputs(span, form.inputs):
            end = at + rows
            if only is None:
                writer.write(_labelled(inputs, at, end, results, form))
            elif kept := [row - at for row in only if at <= row < end]:
                writer.write(_labelled(inputs, at, end, results, form).take(pa.array(kept)))
            at = end
    return writer.part


def _check_results(results: Results, form: PartSchema, rows: int) -> None:
    expected = {column.name for column in form.results}
    wrong = sorted(expected ^ results.keys() | {name for name, values in results.items() if len(values) != rows})
    if wrong:
        raise ValueError(f"every result column needs a value for each of {rows} rows: see {', '.join(wrong)}")


def span_inputs(span: Span, schema: pa.Schema) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the columns of `schema` for the rows of a span, batch by batch, each with its number of rows.

    Raises:
        ColumnError: a value does not fit the schema.
        TableError: the table cannot be read.
    """
    table = span.table
    columns = [name for name in schema.names if name in table.schema.names]
    if columns:
        for batch in table.batches(columns, span.start, span.stop, BATCH_ROWS):
            yield batch.num_rows, conform(table.name, batch, schema).columns
        return
    for start in range(span.start, span.stop, BATCH_ROWS):
        rows = min(BATCH_ROWS, span.stop - start)
        yield rows, [pa.nulls(rows, field.type) for field in schema]


def _labelled(inputs: list[pa.Array], start: int, stop: int, results: Results, form: PartSchema) -> pa.RecordBatch:
    ours = [pa.array(results[column.name][start:stop], _TYPES[column.kind]) for column in form.results]
    return pa.RecordBatch.from_arrays([*inputs, *ours], schema=form.schema)
