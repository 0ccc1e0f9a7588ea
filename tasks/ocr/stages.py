"""The three stages of reading a document, as the engine runs them: open it, read a page's layout, read its lines.

    documents ──spawn──> pages ──spawn──> crops

Each is a lane of its own. Documents are fetched and opened on a few threads that mostly wait; pages and crops run on
the runners, crops of all documents together in batches of equal width, and before more pages are begun, so that little
is held. A page is decoded by the process of the thread that reads it. This module knows no message.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import cv2

from schemas.errors import ErrorCode
from tasks.ocr import crops
from tasks.ocr.decoder import Decoder, GuardedDocument
from tasks.ocr.layout import layout, run_network
from tasks.ocr.recognition import MAX_BATCH_CROPS, MAX_BATCH_WIDTH
from tasks.ocr.sources import check_uri, decode_inline
from worker.errors import ItemFailed
from worker.lanes import Lane
from worker.planner import BatchPolicy
from worker.storage.objects import scheme_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tasks.ocr.crops import Crop
    from tasks.ocr.layout import Networks
    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.objects import DocumentObjects
    from tasks.ocr.recognition import Reading
    from tasks.ocr.sources import AllowedPrefix
    from worker.jobs import Cancellation
    from worker.storage.objects import ObjectInfo

DOCUMENTS: Final = "ocr-documents"
PAGES: Final = "ocr-pages"
CROPS: Final = "ocr-crops"

FETCHERS: Final = 4


@dataclass(frozen=True, slots=True)
class Request:
    """Which pages of which document.

    Attributes:
        uri, content, data, pinned: one of the four: an address, base64, the bytes, or an object as it was listed.
        first_page, last_page: counted from 1; None = to the end.
        is_clipped: whether a `last_page` beyond the document's means its last one.
    """

    uri: str | None
    content: str | None
    first_page: int
    last_page: int | None
    data: bytes | None = None
    pinned: ObjectInfo | None = None
    is_clipped: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A document that can be read.

    Attributes:
        document: its bytes, and how many pages it has.
        pages: those that are asked for, counted from 0.
    """

    document: GuardedDocument
    pages: range


@dataclass(frozen=True, slots=True)
class PageOf:
    """One page of a document, counted from 0."""

    document: GuardedDocument
    index: int


class Stage:
    """What the engine asks of every lane's model; one row at a time unless a stage says otherwise.

    Args:
        name: the lane's.
        info: what made the result.
    """

    max_length = 1

    def __init__(self, name: str, info: Mapping[str, str]) -> None:
        self.name = name
        self.info = info

    def sample(self, batch_size: int, length: int) -> list[object]:
        """Return nothing: a stage is warmed by a page, not by shapes."""
        del batch_size, length
        return []


class DocumentStage(Stage):
    """Fetches and opens documents. Thread-safe; blocks on the store.

    Args:
        info: see `Stage`.
        limits: of documents.
        allowed: where documents may come from; a file that is pinned is one of a run's own inputs, and needs no leave.
        objects: reads them.
    """

    def __init__(
        self,
        info: Mapping[str, str],
        limits: DocumentLimits,
        allowed: Collection[AllowedPrefix],
        objects: DocumentObjects,
    ) -> None:
        super().__init__(DOCUMENTS, info)
        self._limits = limits
        self._allowed = allowed
        self._objects = objects
        self._decoder = Decoder(limits)

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        """Return `Opened`, or why not, for each `Request`."""
        del cancellation
        return [self._opened(cast("Request", request)) for request in features]

    def _opened(self, request: Request) -> object:
        try:
            document = self._decoder.open(self._bytes(request))
            return Opened(document, _asked_for(request, document.pages))
        except ItemFailed as failed:
            return failed.bare()

    def _bytes(self, request: Request) -> bytes:
        if request.content is not None:
            return decode_inline(request.content, self._limits.inline_bytes)
        if request.data is not None:
            return request.data
        if request.pinned is None or scheme_of(request.pinned.uri) != "file":
            check_uri(request.pinned.uri if request.pinned else request.uri or "", self._allowed)
        return self._objects.read(request.pinned or request.uri or "", self._limits.document_bytes)


class PageStage(Stage):
    """Decodes a page, turns it upright and finds its lines. Thread-safe: each thread has a decoder of its own.

    Args:
        info: see `Stage`.
        limits: of documents.
        networks: loaded.
    """

    def __init__(self, info: Mapping[str, str], limits: DocumentLimits, networks: Networks) -> None:
        super().__init__(PAGES, info)
        cv2.setNumThreads(1)
        self._limits = limits
        self._networks = networks
        self._mine = threading.local()

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        """Return a `Layout`, or why not, for each `PageOf`; blocks for half a second each.

        Raises:
            ItemFailed: it was cancelled while a page was decoded.
        """
        return [self._layout(cast("PageOf", page), cancellation) for page in features]

    def _layout(self, page: PageOf, cancellation: Cancellation) -> object:
        if not hasattr(self._mine, "decoder"):
            self._mine.decoder = Decoder(self._limits)
        cancellation.hook(self._mine.decoder.interrupt)  # its CPU seconds may take long on a busy or throttled machine
        try:
            image = page.document.page(page.index, self._mine.decoder).image
        except ItemFailed as failed:
            if cancellation.cancelled:  # it is the call that took too long; that says nothing of the document
                raise
            return failed.bare()
        return layout(image, self._networks, cancellation)


class CropStage(Stage):
    """Reads crops of equal padded width. Thread-safe.

    Args:
        info: see `Stage`.
        networks: loaded.
    """

    max_length = crops.MAX_WIDTH

    def __init__(self, info: Mapping[str, str], networks: Networks) -> None:
        super().__init__(CROPS, info)
        self._networks = networks

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[Reading]:
        """Return what each `Crop` says."""
        values = crops.network_input(cast("list[Crop]", list(features)))
        return self._networks.alphabet.decode(run_network(self._networks.recognition, values, cancellation))


def lanes(documents: DocumentStage, pages: PageStage, lines: CropStage, *, waits_s: float = 0.0) -> dict[str, Lane]:
    """Return the lanes of the stages: what has begun is ended before more is begun. A message is so many pages.

    Args:
        documents: opens them.
        pages: finds their lines.
        lines: reads these.
        waits_s: how long a document may wait for its store, and for others to be opened.
    """
    alone = BatchPolicy(max_batch_size=1, max_batch_tokens=1, planning_window=64)
    together = BatchPolicy(max_batch_size=MAX_BATCH_CROPS, max_batch_tokens=MAX_BATCH_WIDTH, equal_lengths=True)
    return {
        DOCUMENTS: Lane(documents, alone, spawns=True, is_unit=False, threads=FETCHERS, waits_s=waits_s),
        PAGES: Lane(pages, alone, depth=1, spawns=True),
        CROPS: Lane(lines, together, depth=2, is_unit=False),
    }


def _asked_for(request: Request, pages: int) -> range:
    last = pages if request.last_page is None else request.last_page
    if request.is_clipped:
        last = min(last, pages)
    if max(request.first_page, last) > pages:
        text = f"page {max(request.first_page, last)} is asked for, and the document has {pages}"
        raise ItemFailed(ErrorCode.NO_SUCH_PAGE, text)
    return range(request.first_page - 1, last)
