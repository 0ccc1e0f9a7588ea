"""Reads Parquet by row ranges, with memory that depends on neither the file's size nor its row groups'.

Pages are read through one buffer a column, row group by row group, and never ahead: `pyarrow.dataset` and pre-buffering
keep what they read until the file's end (apache/arrow#39808). Held at any time: `read_buffer_bytes` over all columns
(at least 16 KiB each), one page and one dictionary a column, and one batch. A batch has at most `batch_rows` times its
longest row, and no more than `BATCH_BYTES` where rows share the values of a small dictionary, a megabyte that a million
rows name, say. A column that is dictionary-typed in Arrow costs up to its part of a row group. Page checksums are
verified where a file has them.

A range that begins inside a row group decodes the pages before it and drops them: Parquet's pages have no row index
that pyarrow reads. It knows nothing of what the texts are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from worker.errors import UnreadableTable
from worker.storage.footer import Footer, FooterLimits, read_footer
from worker.storage.sources import Source
from worker.storage.tables import (
    BATCH_ROWS,
    Texts,
    check_columns,
    check_range,
    check_text_columns,
    may_hold_text,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READ_BUFFER_BYTES: Final = 32 << 20
_COLUMN_BUFFER_BYTES_MIN: Final = 16 << 10
_COLUMN_BUFFER_BYTES_MAX: Final = 4 << 20
BATCH_BYTES: Final = 32 << 20
# A dictionary is expanded only as its values are used: one that fits here is never expanded before.
_SMALL_CHUNK_BYTES: Final = 8 << 20


class ParquetTable:
    """Implements `worker.storage.tables.Table` for Parquet. Not thread-safe.

    Opening reads the footer only.

    Args:
        file: seekable and binary, open as long as this is read.
        name: what errors call it.
        limits: what its footer may claim.
        read_buffer_bytes: for the buffers of all columns that are read together.

    Raises:
        UnreadableTable: the file is no Parquet, or damaged.
        OversizedTable: its footer claims more than `limits`.
        ColumnError: two columns share a name.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        limits: FooterLimits | None = None,
        read_buffer_bytes: int = READ_BUFFER_BYTES,
    ) -> None:
        self._source = Source(file, name)
        self._read_buffer_bytes = read_buffer_bytes
        self.footer: Footer = read_footer(self._source, limits or FooterLimits())

    @property
    def name(self) -> str:
        """What errors call the file."""
        return self._source.name

    @property
    def rows(self) -> int:
        """Rows of all row groups."""
        return self.footer.rows

    @property
    def schema(self) -> pa.Schema:
        """Every column, with the metadata of the fields and of the file."""
        return self.footer.schema

    def texts(self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS) -> Iterator[Texts]:
        """Yield texts as `Table.texts` says; only `columns` are decoded."""
        check_text_columns(self, columns)
        check_range(self, start, stop)
        return self._texts(columns, start, stop, batch_rows)

    def batches(
        self, columns: Sequence[str], start: int, stop: int, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches as `Table.batches` says; only `columns` are decoded."""
        check_columns(self, columns)
        check_range(self, start, stop)
        schema = pa.schema([self.schema.field(column) for column in columns])
        compact = self._batches(columns, start, stop, batch_rows)
        return (expanded for batch in compact for expanded in _expanded(batch, schema))

    def _texts(self, columns: Sequence[str], start: int, stop: int, batch_rows: int) -> Iterator[Texts]:
        for batch in self._batches(columns, start, stop, batch_rows):
            yield {column: texts_of(batch.column(column)) for column in columns}

    def _batches(self, columns: Sequence[str], start: int, stop: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches whose columns may be dictionaries where the schema has their values."""
        first = 0
        for index, group in enumerate(self.footer.row_groups):
            low, high = max(start - first, 0), min(stop - first, group.rows)
            if low < high:
                with self._source.reading():
                    yield from self._of_group(index, columns, low, high, batch_rows)
            first += group.rows

    def _of_group(
        self, index: int, columns: Sequence[str], low: int, high: int, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(
            self._source,
            metadata=self.footer.metadata,
            read_dictionary=self._small_dictionaries(index, columns),
            pre_buffer=False,
            buffer_size=self._column_buffer_bytes(columns),
            page_checksum_verification=True,
        )
        at = 0
        # Sparing threads: the cores are the model's.
        for batch in file.iter_batches(batch_rows, row_groups=[index], columns=columns, use_threads=False):
            end = at + batch.num_rows
            if end > low:
                wanted = batch.select(list(columns))
                self._check_dictionaries(wanted)
                yield wanted.slice(max(low - at, 0), min(high, end) - max(low, at))
            if end >= high:
                return
            at = end
        text = f"row group {index} ends after {at} of {self.footer.row_groups[index].rows} rows"
        raise UnreadableTable(self.name, text)

    def _check_dictionaries(self, batch: pa.RecordBatch) -> None:
        """Arrow takes a damaged page's word for which entry a row has; used as it is, it reads foreign memory."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if isinstance(column, pa.DictionaryArray) and column.null_count < len(column):
                bounds = pc.min_max(column.indices)
                if bounds["min"].as_py() < 0 or bounds["max"].as_py() >= len(column.dictionary):
                    raise UnreadableTable(self.name, f"column {name!r}: a row names an entry that is not there")

    def _column_buffer_bytes(self, columns: Sequence[str]) -> int:
        share = self._read_buffer_bytes // max(len(columns), 1)
        return min(max(share, _COLUMN_BUFFER_BYTES_MIN), _COLUMN_BUFFER_BYTES_MAX)

    def _small_dictionaries(self, index: int, columns: Sequence[str]) -> list[str]:
        """Columns that stay dictionaries as they are read: a megabyte that a million rows share is read once.

        Only small ones: where a writer gave the dictionary up half-way, Arrow goes on building it in memory.
        """
        return [
            chunk.path
            for chunk in self.footer.row_groups[index].chunks
            if chunk.path in columns
            and "." not in chunk.path  # which may be a nested field of that spelling
            and chunk.has_dictionary
            and chunk.uncompressed_bytes <= _SMALL_CHUNK_BYTES
            and may_hold_text(self.schema.field(chunk.path).type)
        ]


def _expanded(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batch with the schema's types, in pieces of at most `BATCH_BYTES` or one row."""
    compact = [column for column, field in zip(batch.columns, schema, strict=True) if column.type != field.type]
    if batch.num_rows > 1 and sum(map(_values_bytes, compact)) > BATCH_BYTES:
        half = batch.num_rows // 2
        yield from _expanded(batch.slice(0, half), schema)
        yield from _expanded(batch.slice(half), schema)
        return
    columns = [
        column if column.type == field.type else column.dictionary_decode().cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _values_bytes(column: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(column.indices)).as_py() or 0
