"""The documents of a shard, one after the other: named by a column, lying in one, or listed by the run itself.

It reads the table that names them, and no document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.errors import ErrorCode
from tasks.bulk.listing import listed
from tasks.ocr.stages import Request
from worker.errors import ItemFailed
from worker.storage.contents import contents, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.bulk_ocr import BulkOcr
    from worker.storage.contents import Content
    from worker.storage.labelling import Span
    from worker.storage.objects import ObjectInfo
    from worker.storage.tables import Text

NAMES_READ: Final = 64  # at a time


@dataclass(frozen=True, slots=True)
class Asked:
    """One document that a run is to read.

    Attributes:
        file: the input that names or holds it; of a document that is an input, itself.
        row: its number in that input, or among the run's documents; from 0.
        uri: its address, if it has one.
        request: what the engine is asked; or why there is nothing to ask.
    """

    file: str
    row: int
    uri: str | None
    request: Request | ItemFailed


def documents(span: Span, asked: BulkOcr) -> Iterator[Asked]:
    """Yield the documents that a span's rows mean, in order. Blocks on the table; holds some rows of it.

    Raises:
        TableError, StorageError: the rows cannot be read.
    """
    if asked.uri is not None:
        for row, uri in enumerate(texts(span, asked.uri, NAMES_READ), span.start):
            yield Asked(span.table.name, row, uri if isinstance(uri, str) else None, _of_address(uri, asked))
    elif asked.content is not None:
        for row, content in enumerate(contents(span, asked.content), span.start):
            yield Asked(span.table.name, row, None, _of_content(content, asked))
    else:
        for row, info in enumerate(listed(span), span.start):
            yield Asked(info.uri, row, info.uri, _of_object(info, asked))


def _of_address(uri: Text, asked: BulkOcr) -> Request | ItemFailed:
    if isinstance(uri, ItemFailed):
        return uri
    if uri is None:
        return ItemFailed(ErrorCode.MISSING_DOCUMENT, "the row's address is null")
    return _request(asked, uri=uri)


def _of_content(content: Content, asked: BulkOcr) -> Request | ItemFailed:
    match content:
        case ItemFailed():
            return content
        case bytes():
            return _request(asked, data=content)
        case str():
            return _request(asked, content=content)
    return ItemFailed(ErrorCode.MISSING_DOCUMENT, "the row's content is null")


def _of_object(info: ObjectInfo, asked: BulkOcr) -> Request:
    return _request(asked, pinned=info)


def _request(
    asked: BulkOcr,
    *,
    uri: str | None = None,
    content: str | None = None,
    data: bytes | None = None,
    pinned: ObjectInfo | None = None,
) -> Request:
    return Request(uri, content, asked.first_page, asked.last_page, data, pinned, is_clipped=True)
