"""What an `ocr.documents` message means to the engine: documents that spawn pages that spawn lines, and its result.

A document that cannot be had and a page that cannot be read, to the last line, are each their own error; neighbours
never notice. It knows neither Celery nor batching, and never quotes what it read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from schemas.errors import ErrorCode, MessageError
from schemas.ocr import parse_ocr
from tasks.ocr.limits import MIB, DocumentLimits
from tasks.ocr.reader import page_of
from tasks.ocr.stages import CROPS, DOCUMENTS, PAGES, Opened, PageOf, Request
from worker.errors import ItemFailed
from worker.jobs import Hold, Item, Job
from worker.metrics import OK, PIXELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.ocr import Document
    from tasks.ocr.crops import Crop
    from tasks.ocr.layout import Layout
    from tasks.ocr.recognition import Reading

PAGE_BREAK: Final = "\f"
NO_PIXELS: Final = np.empty((0, 0, 3), np.uint8)  # a crop is forgotten as soon as it has been read
AHEAD_BYTES: Final = 128 * MIB  # of a message's documents, fetched before all of their pages are decoded

_SCORE_DIGITS: Final = 4
_PIXEL_DIGITS: Final = 1


@dataclass(slots=True)
class Opening:
    """A document, as the source of its item; what it is, once it is open.

    Attributes:
        pages: the items of those that are asked for.
        of_pages: how many it has.
        size_bytes: of the file.
    """

    pages: list[Item] = field(default_factory=list)
    of_pages: int = 0
    size_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class DocumentNode(Opening):
    """A document of a message."""

    request: Document


@dataclass(slots=True)
class PageNode:
    """A page, counted from 1, and the items of its crops."""

    number: int
    crops: list[Item] = field(default_factory=list)


class OcrPipeline:
    """Implements `worker.jobs.Pipeline` for documents. Thread-safe.

    Args:
        name: of the model that it reads with.
        info: what `schemas.results.ModelInfo` describes.

    Attributes:
        name, info: the same.
    """

    reads = PIXELS

    def __init__(self, name: str, info: Mapping[str, str]) -> None:
        self.name = name
        self.info = dict(info)

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Validate the message; set `job.request` and `job.items`.

        Raises:
            MessageError: it is wrong as a whole, or asks for another model.
        """
        request = parse_ocr(args, kwargs)
        self.check_model(request.model)
        job.request = request
        job.allowance_bytes = AHEAD_BYTES
        job.items = [
            Item(job, index, DocumentNode(request=document), DOCUMENTS, hold=Hold(_most_bytes(document)))
            for index, document in enumerate(request.documents)
        ]

    def check_model(self, name: str | None) -> None:
        """Refuse a request that asks for another model; None asks for any.

        Raises:
            MessageError: it does.
        """
        if name not in (None, self.name):
            text = f"model: this worker has {self.name}; name it or leave model out"
            raise MessageError(ErrorCode.UNKNOWN_MODEL, text)

    def prepare(self, items: Sequence[Item]) -> None:
        """Say what is to be opened, or what is wrong with how it was asked for."""
        for item in items:
            asked = _request(cast("DocumentNode", item.source).request)
            if isinstance(asked, ItemFailed):
                item.outcome = asked
            else:
                item.features, item.length = asked, 1

    def spawn(self, item: Item) -> Sequence[Item]:
        """Return the pages of an opened document, or the crops of a page whose lines were found."""
        if isinstance(item.outcome, Opened):
            return _pages(item, item.outcome)
        layout, node = cast("Layout", item.outcome), cast("PageNode", item.source)
        item.outcome = replace(layout, crops=())  # else the pixels of all lines would be kept until the message ends
        node.crops = [
            Item(
                item.job,
                index,
                crop._replace(pixels=NO_PIXELS),
                CROPS,
                features=crop,
                length=crop.padded_width,
                padding=crop.padding,
            )
            for index, crop in enumerate(layout.crops)
        ]
        return node.crops

    def complete(self, job: Job) -> dict[str, object]:
        """Return what `schemas.ocr.OcrResult` describes; keys that would be null are left out."""
        results = [_document(item) for item in job.items]
        job.outcomes = [str(cast("Any", one.get("error", {})).get("code", OK)) for one in results]
        job.pixels = sum(map(_pixels, job.items))
        timings = job.timings()
        pages = [page for one in results for page in cast("list[dict[str, Any]]", one["pages"])]
        counts = {"pages": len(pages), "lines": sum(len(page["lines"]) for page in pages)}
        kept = ("queue_wait_s", "queue_wait_is_lower_bound", "inference_s", "batches")
        return {
            "schema_version": 1,
            "results": results,
            "model": self.info,
            "timings": {name: timings[name] for name in kept} | counts,
        }


def _request(document: Document) -> Request | ItemFailed:
    given = document.model_fields_set & {"uri", "content"}
    source = document.content if "content" in given else document.uri
    if not isinstance(source, str):
        text = "the document has neither a uri nor a content that is a string; give it one"
        return ItemFailed(ErrorCode.MISSING_DOCUMENT, text)
    inline = "content" in given
    return Request(
        uri=None if inline else source,
        content=source if inline else None,
        first_page=document.first_page,
        last_page=document.last_page,
    )


def _most_bytes(document: Document) -> int:
    """Return what the document may have: of one inside the message, what its base64 makes."""
    most = DocumentLimits().document_bytes
    return min(most, len(document.content)) if isinstance(document.content, str) else most


def _pages(item: Item, opened: Opened) -> list[Item]:
    """Return the pages; from here on they alone keep the bytes, and the last that is decoded lets them go."""
    node, item.outcome = cast("Opening", item.source), opened.pages
    node.of_pages, node.size_bytes = opened.document.pages, len(opened.document.data)
    if item.hold is not None:
        item.hold.bytes = node.size_bytes
    node.pages = [
        Item(
            item.job,
            index,
            PageNode(index + 1),
            PAGES,
            features=PageOf(opened.document, index),
            length=1,
            hold=item.hold,
        )
        for index in opened.pages
    ]
    return node.pages


def _document(item: Item) -> dict[str, object]:
    node = cast("DocumentNode", item.source)
    if isinstance(item.outcome, ItemFailed):
        return {"id": node.request.id, "pages": [], "text": "", "error": item.outcome.as_dict()}
    pages = [page_result(page) for page in node.pages]
    if all("error" in fields for fields, _ in pages):
        return {"id": node.request.id, "pages": [], "text": "", "error": pages[0][0]["error"]}
    return {
        "id": node.request.id,
        "pages": [fields for fields, _ in pages],
        "text": PAGE_BREAK.join(text for _, text in pages),
    }


def _pixels(item: Item) -> int:
    """Return how many pixels were decoded of a document."""
    layouts = (cast("Layout", page.outcome) for page in cast("DocumentNode", item.source).pages)
    return sum(layout.width * layout.height for layout in layouts if not isinstance(layout, ItemFailed))


def page_result(item: Item) -> tuple[dict[str, Any], str]:  # Any: JSON
    """Return what `schemas.ocr.PageResult` describes of a page that has ended, and its text."""
    node = cast("PageNode", item.source)
    if isinstance(item.outcome, ItemFailed):
        return _unread(node, item.outcome)
    failed = next((crop.outcome for crop in node.crops if isinstance(crop.outcome, ItemFailed)), None)
    if failed is not None:  # a page of which a line is missing is no page that was read
        return _unread(node, failed)
    layout = cast("Layout", item.outcome)
    cut = [cast("Crop", crop.source) for crop in node.crops]
    page = page_of(layout, cut, [cast("Reading", crop.outcome) for crop in node.crops])
    lines = [
        {
            "text": line.text,
            "confidence": round(min(line.score, 1.0), _SCORE_DIGITS),
            "box": [[round(float(at), _PIXEL_DIGITS) for at in corner] for corner in line.corners],
        }
        for line in page.lines
    ]
    fields = {"page": node.number, "width": page.width, "height": page.height, "rotation": page.rotation}
    return fields | {"lines": lines}, page.text


def _unread(node: PageNode, failed: ItemFailed) -> tuple[dict[str, Any], str]:
    fields: dict[str, Any] = {"page": node.number, "width": 0, "height": 0, "rotation": 0, "lines": []}
    return fields | {"error": failed.as_dict()}, ""
