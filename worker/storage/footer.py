"""What a Parquet footer says, and whether to believe it: checked before a single page is decoded.

A file of a few kilobytes can claim billions of rows or gigabytes of text. Every number that later sizes an allocation
is held here against the file's size and against `FooterLimits`. Reads the footer only; knows nothing of texts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from worker.errors import OversizedTable, UnreadableTable
from worker.storage.tables import check_distinct

if TYPE_CHECKING:
    from worker.storage.sources import Source

_MAGIC: Final = b"PAR1"
_MAGIC_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 8  # footer length (uint32, little endian) and magic
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FooterLimits:
    """What a footer may claim.

    Attributes:
        footer_bytes: its own length.
        rows: of the file.
        rows_per_byte: rows over the file's size; a column of one repeated value reaches thousands.
        row_groups: of the file.
        columns: leaf columns of the file.
        chunk_bytes: uncompressed, one column of one row group.
        chunk_expansion: uncompressed over compressed size of a chunk, once it is beyond `expansion_free_bytes`.
        expansion_free_bytes: uncompressed size of a chunk up to which any expansion is harmless.
    """

    footer_bytes: int = 64 * _MIB
    rows: int = 10_000_000_000
    rows_per_byte: int = 10_000
    row_groups: int = 100_000
    columns: int = 10_000
    chunk_bytes: int = 8192 * _MIB
    chunk_expansion: int = 1000
    expansion_free_bytes: int = 256 * _MIB


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its rows, and its bytes over all columns as stored and once uncompressed."""

    rows: int
    stored_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file as its checked footer describes it.

    Attributes:
        rows: of all row groups.
        row_groups: in file order; some may have no rows.
        schema: Arrow's, with the metadata of the fields and of the file.
        metadata: pyarrow's own, for the reader.
    """

    rows: int
    row_groups: tuple[RowGroup, ...]
    schema: pa.Schema
    metadata: pq.FileMetaData


def read_footer(source: Source, limits: FooterLimits) -> Footer:
    """Read and check a footer; blocks for two or three small reads.

    Raises:
        UnreadableTable: no Parquet file, encrypted, cut short, or its numbers contradict each other.
        OversizedTable: it claims more than `limits` allow.
        ColumnError: two columns share a name.
    """
    footer_bytes = _footer_bytes(source, limits)
    with source.reading():
        file = pq.ParquetFile(
            source,
            pre_buffer=False,
            thrift_string_size_limit=limits.footer_bytes,
            thrift_container_size_limit=max(limits.row_groups, limits.columns) * 2,
        )
        metadata, schema = file.metadata, file.schema_arrow
    check_distinct(source.name, schema.names)
    _check_counts(source, metadata, limits)
    data_end = source.size - _TAIL_BYTES - footer_bytes
    flat = [metadata.schema.column(index).max_repetition_level == 0 for index in range(metadata.num_columns)]
    groups = tuple(
        _row_group(source, metadata.row_group(index), flat, data_end, limits)
        for index in range(metadata.num_row_groups)
    )
    if sum(group.rows for group in groups) != metadata.num_rows:
        raise UnreadableTable(source.name, "the rows of its row groups do not add up to those of the file")
    return Footer(metadata.num_rows, groups, schema, metadata)


def _footer_bytes(source: Source, limits: FooterLimits) -> int:
    if source.size < _TAIL_BYTES + len(_MAGIC):
        raise UnreadableTable(source.name, f"{source.size} bytes are too few for a Parquet file")
    source.seek(-_TAIL_BYTES, os.SEEK_END)
    tail = source.read(_TAIL_BYTES)
    if tail[4:] == _MAGIC_ENCRYPTED:
        raise UnreadableTable(source.name, "its footer is encrypted; give a file in the clear")
    if tail[4:] != _MAGIC:
        raise UnreadableTable(source.name, "it does not end as a Parquet file does: another format, or cut short")
    length = int.from_bytes(tail[:4], "little")
    if length > source.size - _TAIL_BYTES - len(_MAGIC):
        raise UnreadableTable(source.name, f"its footer claims {length} bytes, the file has {source.size}")
    if length > limits.footer_bytes:
        raise OversizedTable(source.name, f"its footer has {length} bytes, the limit is {limits.footer_bytes}")
    return length


def _check_counts(source: Source, metadata: pq.FileMetaData, limits: FooterLimits) -> None:
    for what, count, limit in (
        ("rows", metadata.num_rows, min(limits.rows, limits.rows_per_byte * source.size)),
        ("row groups", metadata.num_row_groups, limits.row_groups),
        ("columns", metadata.num_columns, limits.columns),
    ):
        if count < 0:
            raise UnreadableTable(source.name, f"it claims {count} {what}")
        if count > limit:
            text = f"it claims {count} {what} in {source.size} bytes, the limit is {limit}"
            raise OversizedTable(source.name, text)


def _row_group(
    source: Source, group: pq.RowGroupMetaData, flat: list[bool], data_end: int, limits: FooterLimits
) -> RowGroup:
    stored = uncompressed = 0
    for index, is_flat in enumerate(flat):
        chunk = group.column(index)
        _check_chunk(source, chunk, data_end, limits)
        if is_flat and chunk.num_values != group.num_rows:
            text = (
                f"column {chunk.path_in_schema} has {chunk.num_values} values in a row group of {group.num_rows} rows"
            )
            raise UnreadableTable(source.name, text)
        stored += chunk.total_compressed_size
        uncompressed += chunk.total_uncompressed_size
    return RowGroup(group.num_rows, stored, uncompressed)


def _check_chunk(source: Source, chunk: pq.ColumnChunkMetaData, data_end: int, limits: FooterLimits) -> None:
    stored, uncompressed = chunk.total_compressed_size, chunk.total_uncompressed_size
    column = f"column {chunk.path_in_schema}"
    start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    if min(stored, uncompressed, start) < 0 or start + stored > data_end:
        raise UnreadableTable(source.name, f"{column} claims bytes outside of the file's data")
    if uncompressed > limits.chunk_bytes:
        text = f"{column} claims {uncompressed} bytes in one row group, the limit is {limits.chunk_bytes}"
        raise OversizedTable(source.name, text)
    if uncompressed > max(limits.expansion_free_bytes, stored * limits.chunk_expansion):
        text = (
            f"{column} claims to grow {stored} bytes into {uncompressed}, the limit is {limits.chunk_expansion} times"
        )
        raise OversizedTable(source.name, text)
