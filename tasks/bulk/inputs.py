"""The files that a run reads: found by pattern, pinned as they were, described once, opened by every shard.

A file's ending says its format. What a plan pins of a file, `InputFile`, is all that is needed to open it again
anywhere; if it is another file by then, reading it raises `Changed`. It labels nothing and decides no order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from pydantic import ValidationError

from schemas.bulk_plan import InputFile, InputFormat, LineScan
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.layout import is_of_a_run
from tasks.bulk.parts import partition_folder
from worker.storage.errors import Changed, NotFound
from worker.storage.objects import ObjectInfo, scheme_of, split_s3
from worker.storage.parquet import ParquetTable
from worker.storage.rows import CsvTable, JsonlTable, Scan
from worker.storage.tables import check_columns, check_text_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.bulk.stores import Stores
    from worker.storage.objects import ObjectStore
    from worker.storage.tables import Schema

THREADS: Final = 8
TAIL_BYTES: Final = 64 * 1024

_FORMATS: Final[dict[str, InputFormat]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


@dataclass(frozen=True, slots=True)
class Described:
    """A file as one look into it found it.

    Attributes:
        file: what the plan pins.
        schema: every column of it.
        row_groups: the rows of each; empty where the format has none.
    """

    file: InputFile
    schema: Schema
    row_groups: list[int]


def list_inputs(stores: Stores, patterns: Sequence[str], output: str) -> list[ObjectInfo]:
    """Return the files that the patterns mean, each once, sorted by address, with the version that they have now.

    What a run leaves below `output` is none of them. Blocks for a listing of each pattern and a question for each file.

    Raises:
        MessageError: `no_inputs`, naming the pattern that means no file; `unreadable_input`, naming the file whose
            ending is of no format; `input_changed`, a file went away meanwhile.
        StorageError: the store refuses or fails.
    """
    uris = sorted({uri for pattern in patterns for uri in _matching(stores, pattern, output)})
    for uri in uris:
        _format(uri)

    def look(uri: str) -> ObjectInfo:
        try:
            return stores.of(uri).info(uri)
        except NotFound as error:
            raise MessageError(ErrorCode.INPUT_CHANGED, f"{uri}: it was removed while the run was planned") from error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(look, uris))


def pinned(info: ObjectInfo, output: str) -> InputFile:
    """Return what a plan pins of a file that nobody has looked into yet: its rows are 0.

    Raises:
        MessageError: `unreadable_input`, its ending is of no format, or no message can hold its name.
    """
    kind = _format(info.uri)
    try:
        return InputFile(
            uri=info.uri,
            size_bytes=info.size_bytes,
            etag=info.etag,
            version=info.version,
            rows=0,
            format=kind,
            folder=partition_folder(info.uri, output),
        )
    except ValidationError:
        text = f"{info.uri!a}: its name is too long, or not Unicode; rename it"
        raise MessageError(ErrorCode.UNREADABLE_INPUT, text) from None


def describe(
    store: ObjectStore, file: InputFile, *, texts: Sequence[str] = (), others: Sequence[str] = ()
) -> Described:
    """Look into a file and fill in its rows; blocks for the footer of a Parquet file, or for a whole other file.

    Args:
        store: where it is.
        file: as `pinned` gave it.
        texts: columns that must be there and may hold text.
        others: columns that must be there.

    Raises:
        TableError: the file is damaged, over the limits, or lacks a column.
        StorageError: the store refuses or fails; `Changed` if it is another file by now.
    """
    with open_table(store, file) as table:
        check_text_columns(table, texts)
        check_columns(table, others)
        if isinstance(table, ParquetTable):
            groups, scan = [group.rows for group in table.footer.row_groups], None
        else:
            groups, scan = [], _line_scan(table)
        return Described(file.model_copy(update={"rows": table.rows, "scan": scan}), table.schema, groups)


@contextmanager
def open_table(store: ObjectStore, file: InputFile) -> Iterator[ParquetTable | CsvTable | JsonlTable]:
    """Open the very file that was pinned, for a block; one thread at a time may read it.

    Blocks for the footer of a Parquet file, and for a whole CSV or JSONL file that has no `scan`.

    Raises:
        Changed: at once or at a later read: it is another file by now, or gone.
        TableError: it is damaged, or over the limits.
        StorageError: the store refuses or fails.
    """
    info = ObjectInfo(file.uri, file.size_bytes, file.etag, file.version)
    try:
        opened = store.open(info)
    except NotFound as error:
        raise Changed(file.uri, "the file is gone; plan the run again") from error
    with opened:
        content = cast("BinaryIO", opened)  # which BufferedIOBase is, but for how typeshed names it
        scan = None if file.scan is None else Scan(file.rows, tuple(file.scan.columns), tuple(file.scan.marks))
        match file.format:
            case "parquet":
                content.seek(max(file.size_bytes - TAIL_BYTES, 0))
                content.read(1)  # so that one request brings what the footer is looked for and read in
                yield ParquetTable(content, file.uri)
            case "csv":
                yield CsvTable(content, file.uri, scan)
            case "jsonl":
                yield JsonlTable(content, file.uri, scan)


def _matching(stores: Stores, pattern: str, output: str) -> list[str]:
    if scheme_of(pattern) == "s3":
        pattern = "s3://{}/{}".format(*split_s3(pattern))  # or S3:// would name a file twice
    found = [info.uri for info in stores.of(pattern).list(pattern) if not is_of_a_run(info.uri, output)]
    if not found:
        text = f"{pattern}: no file matches; correct the path, or look whether the files have arrived"
        raise MessageError(ErrorCode.NO_INPUTS, text)
    return found


def _format(uri: str) -> InputFormat:
    name = uri.lower()
    kind = next((kind for ending, kind in _FORMATS.items() if name.endswith(ending)), None)
    if kind is None:
        text = f"{uri}: its ending says no format; an input ends in {', '.join(_FORMATS)}, or narrow the pattern"
        raise MessageError(ErrorCode.UNREADABLE_INPUT, text)
    return kind


def _line_scan(table: CsvTable | JsonlTable) -> LineScan:
    return LineScan(columns=list(table.scan.columns), marks=list(table.scan.marks))
