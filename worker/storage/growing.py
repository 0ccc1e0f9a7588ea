"""Rows of which a span's rows give rise to any number each, as a document does to its pages; and the files with them.

They are held as Arrow until the file is written, which takes a small part of what they take as Python objects. It does
not know what they mean.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from worker.storage.labelling import schema_of, span_inputs
from worker.storage.parts import Part, PartWriter
from worker.storage.tables import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from worker.storage.labelling import PartSchema, ResultColumn, Span


class Grown:
    """The rows that came of a span's, in the order of those. Not thread-safe.

    Args:
        results: their columns.

    Attributes:
        owners: of each row the one that it came of, counted from the span's first.
    """

    def __init__(self, results: Sequence[ResultColumn]) -> None:
        self.owners: list[int] = []
        self._schema = schema_of(results)
        self._batches: list[pa.RecordBatch] = []

    def add(self, owner: int, rows: Sequence[Mapping[str, Any]]) -> None:  # Any: as the columns' kinds are
        """Add what came of a row; a column that a mapping lacks is null there.

        Raises:
            ValueError: a later row has been added already.
        """
        if self.owners and owner < self.owners[-1]:
            raise ValueError("rows are added in the order of those that they came of")
        self.owners += [owner] * len(rows)
        self._batches.append(pa.RecordBatch.from_pylist(list(rows), schema=self._schema))

    def table(self) -> pa.Table:
        """Return the rows."""
        return pa.Table.from_batches(self._batches, self._schema)


def write_grown(path: Path, span: Span, grown: Grown, form: PartSchema, *, where: str | None = None) -> Part:
    """Write rows behind the columns of those that they came of; blocks on both files.

    Args:
        path: see `PartWriter`.
        span: the rows that they came of.
        grown: the rows; of its columns those of `form.results` are written.
        form: the columns and how they are written.
        where: a column; rows in which it is null are left out.

    Raises:
        ColumnError: a value does not fit the unified schema.
        TableError: the table cannot be read.
        BrokenPart: the file does not read back as written.
    """
    table, owners = grown.table(), grown.owners
    if where is not None:
        kept = pc.is_valid(table.column(where))
        owners = [owner for owner, is_kept in zip(owners, kept.to_pylist(), strict=True) if is_kept]
        table = table.filter(kept)
    table = table.select([column.name for column in form.results])
    with PartWriter(path, form.schema, form.metadata, form.row_group_rows, form.compression) as writer:
        at = first = 0
        for rows, inputs in span_inputs(span, form.inputs):
            stop = bisect_left(owners, at + rows, first)
            for start in range(first, stop, BATCH_ROWS):
                end = min(start + BATCH_ROWS, stop)
                indices = pa.array([owner - at for owner in owners[start:end]], pa.int64())
                ours = table.slice(start, end - start).combine_chunks().columns
                columns = [*(column.take(indices) for column in inputs), *map(_in_one, ours)]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=form.schema))
            at, first = at + rows, stop
    return writer.part


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0)
