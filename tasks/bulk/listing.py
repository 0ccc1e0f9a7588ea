"""The list of the documents that a run reads, where its inputs are the documents: one line each, pinned by ETag.

A plan that named a million scans itself would be read by every shard, whole. So the run writes the list into a file of
its own, before the plan, and the plan cuts that. Its name is its content's; two who list the same write the same.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import InputFile, LineScan
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.layout import is_listing, is_of_a_run, listing_uri
from worker.storage.errors import Changed, NotFound
from worker.storage.labelling import Span
from worker.storage.objects import ObjectInfo, scheme_of, split_s3
from worker.storage.rows import MARK_EVERY_ROWS, JsonlTable, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.bulk_manifest import BulkManifest
    from schemas.bulk_plan import BulkRequest
    from tasks.bulk.stores import Stores
    from worker.storage.objects import ObjectStore
    from worker.storage.tables import Table

_COLUMNS: Final = ("uri", "etag", "size_bytes")


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of documents that is stored nowhere yet.

    Attributes:
        file: as a plan pins it; its `etag` is the SHA-256 of its content, whatever store it will be in.
        content: what to store.
        sizes: of the documents in order, in bytes.
    """

    file: InputFile
    content: bytes
    sizes: list[int]


def lists_documents(request: BulkRequest) -> bool:
    """Whether a run's one input is a list that it made."""
    return isinstance(request, BulkOcr) and not request.reads_tables


def list_documents(stores: Stores, patterns: Sequence[str], output: str) -> list[ObjectInfo]:
    """Return the objects that the patterns mean, each once, sorted by address. Blocks for a listing of each pattern.

    What a run leaves below `output` is none of them.

    Raises:
        MessageError: `no_inputs`, naming the pattern that means no object.
        StorageError: the store refuses or fails.
    """
    found: dict[str, ObjectInfo] = {}
    for pattern in patterns:
        if scheme_of(pattern) == "s3":
            pattern = "s3://{}/{}".format(*split_s3(pattern))  # noqa: PLW2901 - or S3:// would name an object twice
        matching = [info for info in stores.of(pattern).list(pattern) if not is_of_a_run(info.uri, output)]
        if not matching:
            text = f"{pattern}: no document matches; correct the path, or look whether the scans have arrived"
            raise MessageError(ErrorCode.NO_INPUTS, text)
        found |= {info.uri: info for info in matching}
    return [found[uri] for uri in sorted(found)]


def listing_of(documents: Sequence[ObjectInfo], output: str) -> Listing | None:
    """Return the list of some documents, for a run with this output; None of none.

    Raises:
        MessageError: `unreadable_input`: a name is no Unicode.
    """
    if not documents:
        return None
    lines, marks, at = [], [], 0
    for number, info in enumerate(documents):
        if number % MARK_EVERY_ROWS == 0:
            marks.append(at)
        lines.append(_line(info))
        at += len(lines[-1])
    content = b"".join(lines)
    sha256 = hashlib.sha256(content).hexdigest()
    file = InputFile(
        uri=listing_uri(output, sha256),
        size_bytes=len(content),
        etag=sha256,
        rows=len(lines),
        format="jsonl",
        scan=LineScan(columns=list(_COLUMNS), marks=marks),
    )
    return Listing(file, content, [info.size_bytes for info in documents])


def listing_table(listing: Listing) -> Table:
    """Return a list that is stored nowhere yet as the table that it will be."""
    return _table(BytesIO(listing.content), listing.file)


@contextmanager
def open_listing(store: ObjectStore, file: InputFile) -> Iterator[Table]:
    """Open a list that stands, for a block. Of a store that keeps no digests, all of it is read first.

    Raises:
        Changed: it is gone, or not the one that was planned.
        StorageError: the store refuses or fails.
    """
    try:
        info = store.info(file.uri)
        is_ours = info.size_bytes == file.size_bytes and store.sha256(file.uri) == file.etag
    except NotFound as error:
        raise Changed(file.uri, "the run's list of documents is gone; plan the run again") from error
    if not is_ours:
        raise Changed(file.uri, "the run's list of documents was overwritten; plan the run again")
    with store.open(info) as content:
        yield _table(cast("BinaryIO", content), file)  # which BufferedIOBase is, but for how typeshed names it


def listed(span: Span) -> Iterator[ObjectInfo]:
    """Yield the documents of some rows of a list."""
    for batch in span.table.texts(_COLUMNS, span.start, span.stop):
        for uri, etag, size_bytes in zip(*(batch[column] for column in _COLUMNS), strict=True):
            if not (isinstance(uri, str) and isinstance(etag, str) and isinstance(size_bytes, str)):
                raise Changed(span.table.name, "this is no list of a run's documents; plan the run again")
            yield ObjectInfo(uri, int(size_bytes), etag)


def covered(stores: Stores, earlier: BulkManifest) -> set[tuple[str, str]]:
    """Return address and ETag of every document that an earlier run covers. Blocks on its lists.

    Raises:
        MessageError: `unreadable_input`: that run did not list its documents.
        Changed: a list of it is gone.
    """
    known: set[tuple[str, str]] = set()
    for file in (*earlier.inputs, *earlier.carried):
        if not is_listing(file.uri):
            text = f"{file.uri}: the earlier run read tables, this one documents; give the manifest of a run like this"
            raise MessageError(ErrorCode.UNREADABLE_INPUT, text)
        with open_listing(stores.of(file.uri), file) as table:
            known.update((info.uri, info.etag) for info in listed(Span(table, 0, table.rows)))
    return known


def _table(content: BinaryIO, file: InputFile) -> Table:
    scan = None if file.scan is None else Scan(file.rows, tuple(file.scan.columns), tuple(file.scan.marks))
    return JsonlTable(content, file.uri, scan)


def _line(info: ObjectInfo) -> bytes:
    fields = {"uri": info.uri, "etag": info.etag, "size_bytes": str(info.size_bytes)}
    try:
        return (json.dumps(fields, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        raise MessageError(ErrorCode.UNREADABLE_INPUT, f"{info.uri!a}: its name is not Unicode; rename it") from None
