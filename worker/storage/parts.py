"""Writes a part: the rows of a range with what the model said of them, whole and verified, or not at all.

pyarrow ends a file properly whenever its writer is closed or collected, even after an exception, so what was half
written looks whole (apache/arrow#40502). Here the bytes go through a sink that refuses everything once writing has
failed, into a file of another name that gets the part's name only after it was read back. The same rows give the same
bytes under one pyarrow version, however they were batched (unless rows are so long that a row group ends early, at the
end of a batch): row groups have a fixed size, and nothing depends on time.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from worker.errors import BrokenPart
from worker.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_BYTES: Final = 128 << 20
_PARTIAL_SUFFIX: Final = ".partial"


@dataclass(frozen=True, slots=True)
class Part:
    """A verified file.

    Attributes:
        rows: in it.
        size: bytes.
        sha256: hexadecimal, of the whole file as it reads back.
    """

    rows: int
    size: int
    sha256: str


class PartWriter:
    """Writes one Parquet file of a schema; a context manager. Not thread-safe.

    `path` exists only once the block has ended well and the file was verified; `part` then says what it is. On any
    exception nothing is left. Only one writer may have a `path` at a time. Memory: twice `ROW_GROUP_BYTES` and a batch,
    because a row group of long rows ends early.

    Args:
        path: on a local disk; replaced if it exists.
        schema: of every batch, with the metadata that the file shall carry.
        metadata: more key-value pairs for the file; they win over the schema's own.
        row_group_rows: rows of every row group but the last and those that end early.
        compression: `zstd`, `snappy`, `gzip` or `none`.

    Raises:
        BrokenPart: at the end of the block: the file does not read back as it was written.
        OSError: the disk is full, say.
    """

    part: Part

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        row_group_rows: int = ROW_GROUP_ROWS,
        compression: str = "zstd",
    ) -> None:
        own = {key.encode(): value.encode() for key, value in sorted(metadata.items())}
        self.schema = schema.with_metadata({**(schema.metadata or {}), **own})
        self._path = path
        self._row_group_rows = row_group_rows
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._rows = 0

    def __enter__(self) -> Self:
        self._sink = _Sink(self._path.with_name(self._path.name + _PARTIAL_SUFFIX))
        try:
            self._writer = _writer(self._sink, self.schema, self._compression)
        except BaseException:
            self._sink.abandon()
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; blocks on the disk once a row group is full.

        Raises:
            ValueError: the batch has another schema.
        """
        if not batch.schema.equals(self.schema):
            raise ValueError(f"{self._path.name} has another schema than this batch")
        while batch.num_rows:
            room = self._row_group_rows - self._waiting_rows
            self._waiting.append(batch.slice(0, room))
            self._waiting_rows += self._waiting[-1].num_rows
            batch = batch.slice(room)
            self._waiting_bytes += self._waiting[-1].nbytes
            if self._waiting_rows == self._row_group_rows or self._waiting_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abandon()
            return
        try:
            self._flush()
            self._writer.close()
            self._sink.close()
            self.part = _verified(self._sink, self._rows, self.schema)
            self._sink.path.replace(self._path)
        except BaseException:
            self._abandon()
            raise

    def _flush(self) -> None:
        if not self._waiting_rows:
            return
        # In one piece, so that pages end where they would in any other batching.
        table = pa.Table.from_batches(self._waiting, self.schema).combine_chunks()
        self._writer.write_table(table, row_group_size=self._row_group_rows)
        self._rows += self._waiting_rows
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def _abandon(self) -> None:
        self._sink.abandon()
        # It tries to end the file; the sink refuses.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False


class _Sink:
    """A file that counts and hashes what Arrow writes, until it is abandoned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.hash = hashlib.sha256()
        self._file = path.open("wb")
        self._is_abandoned = False

    @property
    def closed(self) -> bool:
        return self._file.closed

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.size

    def write(self, data: bytes) -> int:
        if self._is_abandoned:
            raise OSError(f"{self.path.name} was given up: nothing more is written")
        self._file.write(data)
        self.hash.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        if not self._is_abandoned:
            self._file.flush()

    def close(self) -> None:
        if not self._is_abandoned:
            self._file.close()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # what is buffered may not fit the disk
            self._file.close()


def _writer(sink: _Sink, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        version="2.6",
        write_statistics=True,
        write_page_checksum=True,
        store_schema=True,
    )


def _verified(sink: _Sink, rows: int, schema: pa.Schema) -> Part:
    """Read the whole file back, its bytes and its values."""
    sha256 = sha256_of(sink.path)
    if sha256 != sink.hash.hexdigest():
        raise BrokenPart(f"{sink.path.name}: the disk returns other bytes than were written")
    try:
        read_rows, read_schema = _read_back(sink.path)
    except (pa.ArrowException, OSError) as error:
        raise BrokenPart(f"{sink.path.name}: it does not read back") from error
    if read_rows != rows:
        raise BrokenPart(f"{sink.path.name}: {rows} rows were written, {read_rows} read back")
    if not read_schema.equals(schema):
        raise BrokenPart(f"{sink.path.name}: its columns read back as others or of other types")
    return Part(rows, sink.size, sha256)


def _read_back(path: Path) -> tuple[int, pa.Schema]:
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        rows = 0
        for batch in file.iter_batches(use_threads=False):
            rows += batch.num_rows
        if rows != file.metadata.num_rows:
            raise BrokenPart(f"{path.name}: its footer claims {file.metadata.num_rows} rows, {rows} read back")
        return rows, file.schema_arrow
