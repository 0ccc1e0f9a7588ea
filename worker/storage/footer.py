"""What a Parquet footer says, and whether to believe it: checked before a single page is decoded.

A file of a few kilobytes can claim billions of rows or gigabytes of text. Every number that later sizes an allocation
is held here against the file's size and against `FooterLimits`. Reads the footer only; knows nothing of texts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from worker.errors import OversizedTable, UnreadableTable
from worker.storage.tables import check_distinct
from worker.storage.thrift import Wanted, decode

if TYPE_CHECKING:
    from worker.storage.sources import Source

_MAGIC: Final = b"PAR1"
_MAGIC_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 8  # footer length (uint32, little endian) and magic
_MIB: Final = 1 << 20

# Field numbers of parquet.thrift.
_ROWS, _GROUPS = 3, 4  # of FileMetaData
_GROUP_CHUNKS, _GROUP_ROWS = 1, 3  # of RowGroup
_CHUNK_METADATA = 3  # of ColumnChunk
_PATH, _VALUES, _UNCOMPRESSED, _STORED, _DATA_PAGE, _DICTIONARY_PAGE = 3, 5, 6, 7, 9, 11  # of ColumnMetaData
_CHUNK_FIELDS: Final = dict.fromkeys((_PATH, _VALUES, _UNCOMPRESSED, _STORED, _DATA_PAGE, _DICTIONARY_PAGE))
_WANTED: Final[Wanted] = {
    _ROWS: None,
    _GROUPS: {_GROUP_CHUNKS: {_CHUNK_METADATA: _CHUNK_FIELDS}, _GROUP_ROWS: None},
}


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

    footer_bytes: int = 16 * _MIB
    rows: int = 10_000_000_000
    rows_per_byte: int = 10_000
    row_groups: int = 100_000
    columns: int = 10_000
    chunk_bytes: int = 8192 * _MIB
    chunk_expansion: int = 1000
    expansion_free_bytes: int = 256 * _MIB


@dataclass(frozen=True, slots=True)
class Chunk:
    """One leaf column of a row group.

    Attributes:
        path: as the file spells it, with dots between nested names.
        values: nulls and nested values included.
        start: the byte of its first page.
        stored_bytes: as they are in the file.
        uncompressed_bytes: still encoded.
        has_dictionary: whether it begins with a dictionary page.
    """

    path: str
    values: int
    start: int
    stored_bytes: int
    uncompressed_bytes: int
    has_dictionary: bool


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its rows, and its leaf columns in the schema's order."""

    rows: int
    chunks: tuple[Chunk, ...]

    @property
    def stored_bytes(self) -> int:
        """Of all columns, as they are in the file."""
        return sum(chunk.stored_bytes for chunk in self.chunks)

    @property
    def uncompressed_bytes(self) -> int:
        """Of all columns, uncompressed and still encoded."""
        return sum(chunk.uncompressed_bytes for chunk in self.chunks)


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
    data = _footer_data(source, limits)
    rows, groups = _decoded(source, data)
    _check_count(source, "rows", rows, min(limits.rows, limits.rows_per_byte * source.size))
    _check_count(source, "row groups", len(groups), limits.row_groups)
    for group in groups:
        _check_count(source, "columns", len(group.chunks), limits.columns)
        for chunk in group.chunks:
            _check_chunk(source, chunk, source.size - _TAIL_BYTES - len(data), limits)
    if sum(group.rows for group in groups) != rows or min((group.rows for group in groups), default=0) < 0:
        raise UnreadableTable(source.name, "the rows of its row groups do not add up to those of the file")
    metadata, schema = _arrow(source, limits)
    _check_columns(source, metadata, groups)
    return Footer(rows, groups, schema, metadata)


def _footer_data(source: Source, limits: FooterLimits) -> bytes:
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
    source.seek(-_TAIL_BYTES - length, os.SEEK_END)
    data = source.read(length)
    if len(data) != length:
        raise UnreadableTable(source.name, "its footer is cut short")
    return data


def _decoded(source: Source, data: bytes) -> tuple[int, tuple[RowGroup, ...]]:
    try:
        footer = decode(data, _WANTED)
        return int(footer[_ROWS]), tuple(_row_group(group) for group in footer[_GROUPS])
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableTable(source.name, "its footer is damaged") from error


def _row_group(group: dict[int, Any]) -> RowGroup:  # Any: see `decode`
    return RowGroup(int(group[_GROUP_ROWS]), tuple(_chunk(chunk[_CHUNK_METADATA]) for chunk in group[_GROUP_CHUNKS]))


def _chunk(chunk: dict[int, Any]) -> Chunk:
    data_page, dictionary_page = chunk[_DATA_PAGE], chunk.get(_DICTIONARY_PAGE, 0)
    return Chunk(
        path=b".".join(chunk[_PATH]).decode(),
        values=int(chunk[_VALUES]),
        start=min(data_page, dictionary_page) if dictionary_page > 0 else int(data_page),
        stored_bytes=int(chunk[_STORED]),
        uncompressed_bytes=int(chunk[_UNCOMPRESSED]),
        has_dictionary=dictionary_page > 0,
    )


def _arrow(source: Source, limits: FooterLimits) -> tuple[pq.FileMetaData, pa.Schema]:
    with source.reading():
        file = pq.ParquetFile(
            source,
            pre_buffer=False,
            thrift_string_size_limit=limits.footer_bytes,
            thrift_container_size_limit=max(limits.row_groups, limits.columns) * 2,
        )
        schema = file.schema_arrow
    check_distinct(source.name, schema.names)
    return file.metadata, schema


def _check_columns(source: Source, metadata: pq.FileMetaData, groups: tuple[RowGroup, ...]) -> None:
    """Check that every row group has the schema's columns, and a value for each row in those that are flat."""
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    paths = [column.path for column in columns]
    flat = [column.max_repetition_level == 0 for column in columns]
    for group in groups:
        if [chunk.path for chunk in group.chunks] != paths:
            raise UnreadableTable(source.name, "the columns of a row group are not those of its schema")
        for chunk, is_flat in zip(group.chunks, flat, strict=True):
            if is_flat and chunk.values != group.rows:
                text = f"column {chunk.path} has {chunk.values} values in a row group of {group.rows} rows"
                raise UnreadableTable(source.name, text)


def _check_count(source: Source, what: str, count: int, limit: int) -> None:
    if count < 0:
        raise UnreadableTable(source.name, f"it claims {count} {what}")
    if count > limit:
        raise OversizedTable(source.name, f"it claims {count} {what} in {source.size} bytes, the limit is {limit}")


def _check_chunk(source: Source, chunk: Chunk, data_end: int, limits: FooterLimits) -> None:
    stored, uncompressed = chunk.stored_bytes, chunk.uncompressed_bytes
    column = f"column {chunk.path}"
    if min(stored, uncompressed, chunk.start) < 0 or chunk.start + stored > data_end:
        raise UnreadableTable(source.name, f"{column} claims bytes outside of the file's data")
    if uncompressed > limits.chunk_bytes:
        text = f"{column} claims {uncompressed} bytes in one row group, the limit is {limits.chunk_bytes}"
        raise OversizedTable(source.name, text)
    if uncompressed > max(limits.expansion_free_bytes, stored * limits.chunk_expansion):
        text = (
            f"{column} claims to grow {stored} bytes into {uncompressed}, the limit is {limits.chunk_expansion} times"
        )
        raise OversizedTable(source.name, text)
