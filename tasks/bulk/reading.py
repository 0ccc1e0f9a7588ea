"""From a shard's documents to its rows: one for each page, and one for each document that has none.

A few documents are in the engine at a time, in the order of the shard, and what has ended is put away as Arrow; so what
is held is those documents, the rows of the shard, and no more. A document's pages and lines run as those of a message
do (`tasks.ocr.stages`), at the band of bulk work. It knows neither files nor Celery.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from schemas.errors import ErrorCode
from tasks.bulk.columns import page_columns
from tasks.bulk.documents import documents
from tasks.bulk.scans import Speed
from tasks.bulk.tally import tally_pages
from tasks.ocr.pipeline import Opening, page_result
from tasks.ocr.stages import DOCUMENTS
from worker.errors import ItemFailed
from worker.jobs import Item
from worker.planner import Batch
from worker.storage.errors import Unavailable
from worker.storage.growing import Grown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from schemas.bulk_manifest import PageTally
    from schemas.bulk_ocr import BulkOcr
    from tasks.bulk.documents import Asked
    from tasks.ocr.pipeline import OcrPipeline
    from worker.jobs import Job
    from worker.slots import Slot
    from worker.storage.labelling import Span

DOCUMENTS_AHEAD: Final = 4  # in the engine, while another is waited for
SCORE_DIGITS: Final = 4
MEASURED_DOCUMENTS: Final = 4
MEASURED_PAGES: Final = 2  # of each
ASSUMED_DOCUMENTS_PER_S: Final = 1.0  # where none of the measured ones could be read

_Row = dict[str, Any]  # by column, without the prefix; Any: as its kind is


class DocumentReader:
    """Reads the documents of spans for one message. Not thread-safe; blocks while the engine works.

    Args:
        slot: the message's share of the engine.
        pipeline: knows what documents spawn.
        request: what is asked of them.
    """

    def __init__(self, slot: Slot, pipeline: OcrPipeline, request: BulkOcr) -> None:
        self._slot = slot
        self._pipeline = pipeline
        self._request = request

    def read(self, span: Span) -> ReadPages:
        """Return a row for each page of a span's documents.

        Raises:
            TableError, StorageError: the rows cannot be read, or a store that has a document gave no good answer.
            Draining: the worker is stopping.
            Cancelled: the message was called off.
        """
        pages = ReadPages(self._request)
        for asked, job in self._ended(documents(span, self._request)):
            pages.add(asked.row - span.start, _rows(asked, _outcome(asked, job)))
        return pages

    def speed(self, span: Span) -> Speed:
        """Return how fast the whole worker reads, as it is now, by the first pages of the first documents of a span.

        The next documents are fetched while pages are read, so the slower of the two is what counts.

        Raises:
            As `read`.
        """
        for _ in self._ended(self._first(span, 1)):  # so that the processes that decode have been started
            pass
        sizes, pages, read, runner_s, fetching_s = [], 0, 0, 0.0, 0.0
        for asked, job in self._ended(self._first(span, MEASURED_DOCUMENTS)):
            outcome = _outcome(asked, job)
            if isinstance(outcome, Item):
                opened = cast("Opening", outcome.source)
                sizes.append(opened.size_bytes)
                pages += self._pages_of(opened.of_pages)
                read += len(opened.pages)
                runner_s += outcome.job.runner_s
                fetching_s += outcome.job.apart_s
        if not read or not runner_s:
            return Speed(ASSUMED_DOCUMENTS_PER_S, None)
        engine = self._slot.engine
        reading_s = runner_s / read * max(pages, 1) / engine.runners
        busiest_s = max(reading_s, fetching_s / engine.lanes[DOCUMENTS].threads)
        return Speed(len(sizes) / busiest_s, sum(sizes) / len(sizes), pages / len(sizes))

    def _first(self, span: Span, count: int) -> Iterator[Asked]:
        return map(_clipped, islice(documents(span, self._request), count))

    def _pages_of(self, pages: int) -> int:
        """Return how many of a document's pages the run reads."""
        last = pages if self._request.last_page is None else min(self._request.last_page, pages)
        return max(last - self._request.first_page + 1, 0)

    def _ended(self, asked: Iterable[Asked]) -> Iterator[tuple[Asked, Job | None]]:
        """Yield documents in order once they have ended, each with its job, if it has one; forget the job after.

        Whoever stops listening, or whatever else ends this before, ends the documents that are in the engine, too.
        """
        running: deque[tuple[Asked, Job | None]] = deque()
        try:
            for one in self._marked(asked):
                running.append((one, self._start(one)))
                if len(running) > DOCUMENTS_AHEAD:
                    yield from self._next(running)
            while running:
                yield from self._next(running)
        finally:
            for _, job in running:
                if job is not None:
                    self._slot.abandon(job)

    def _marked(self, asked: Iterable[Asked]) -> Iterator[Asked]:
        """Yield the same; should reading the table end the worker, the message is blamed."""
        stream = iter(asked)
        while True:
            with self._slot.working(self._slot.job(self._pipeline)):
                one = next(stream, None)
            if one is None:
                return
            yield one

    def _start(self, asked: Asked) -> Job | None:
        if isinstance(asked.request, ItemFailed):
            return None
        job = self._slot.job(self._pipeline)
        item = Item(job, 0, Opening(), DOCUMENTS, features=asked.request, length=1)
        job.items = [item]
        self._slot.submit(DOCUMENTS, job, [Batch(((item,),), 1)])
        return job

    def _next(self, running: deque[tuple[Asked, Job | None]]) -> Iterator[tuple[Asked, Job | None]]:
        asked, job = running.popleft()
        if job is not None:
            self._slot.wait(job)
        yield asked, job
        if job is not None:
            job.let_go()


class ReadPages:
    """The rows that a span's documents came to.

    Args:
        request: what was asked of them.

    Attributes:
        rows: as Arrow, in order.
        pixels: of all pages, decoded.
    """

    def __init__(self, request: BulkOcr) -> None:
        self.rows = Grown(page_columns(request))
        self._documents = 0
        self._errors: list[ErrorCode | None] = []
        self._confidences: list[float | None] = []
        self._lines = self.pixels = 0

    def add(self, document: int, rows: Sequence[_Row]) -> None:
        """Add the rows of a document, given its number in the span."""
        self.rows.add(document, rows)
        self._documents += 1
        self._errors += [row.get("error_code") for row in rows]
        self._confidences += [row.get("confidence") for row in rows]
        self._lines += sum(len(row.get("lines") or ()) for row in rows)
        self.pixels += sum(row.get("width", 0) * row.get("height", 0) for row in rows)

    def tally(self) -> PageTally:
        """Return the counts over the rows."""
        return tally_pages(self._documents, self._errors, self._confidences, lines=self._lines)


def _clipped(asked: Asked) -> Asked:
    if isinstance(asked.request, ItemFailed):
        return asked
    first, last = asked.request.first_page, asked.request.last_page
    few = first + MEASURED_PAGES - 1
    return replace(asked, request=replace(asked.request, last_page=few if last is None else min(few, last)))


def _outcome(asked: Asked, job: Job | None) -> Item | ItemFailed:
    """Return a document's item, if it was opened, or why it was not.

    Raises:
        Unavailable: its store gave no good answer: a later try may, and a part stands for good.
    """
    if job is None:
        return cast("ItemFailed", asked.request)
    (item,) = job.items
    failed = item.outcome
    if not isinstance(failed, ItemFailed):
        return item
    if failed.code is ErrorCode.STORE_UNAVAILABLE:
        raise Unavailable(asked.uri or asked.file, failed.message)
    return failed


def _rows(asked: Asked, outcome: Item | ItemFailed) -> list[_Row]:
    document = {"file": asked.file, "row": asked.row, "uri": asked.uri}
    if isinstance(outcome, ItemFailed):
        return [document | {"error_code": outcome.code}]
    opened = cast("Opening", outcome.source)
    document["pages"] = opened.of_pages
    return [document | _page(page) for page in opened.pages]


def _page(item: Item) -> _Row:
    fields, text = page_result(item)
    if "error" in fields:
        return {"page": fields["page"], "error_code": ErrorCode(fields["error"]["code"])}
    lines = fields["lines"]
    mean = sum(line["confidence"] for line in lines) / len(lines) if lines else None
    return fields | {"text": text, "confidence": None if mean is None else round(mean, SCORE_DIGITS)}
