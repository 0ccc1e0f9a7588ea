"""From a shard's rows to its result columns: read a window, tokenise it, plan it, run it on the engine, collect.

Windows and their batches follow from the plan and the rows alone, so that a rerun meets the same batches. A few windows
are in the engine while the next one is read, which keeps the model busy over a slow store. Held at a time: the texts
and tokens of those windows, and a label, a score and a digest of each row of the shard.
It knows neither files nor Celery.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

from schemas.errors import ErrorCode
from tasks.bulk.columns import text_columns
from tasks.bulk.tally import tally_rows
from tasks.classify.pipeline import checked, joined, labels_of
from worker.errors import ItemFailed
from worker.isolation import isolate
from worker.jobs import Item
from worker.planner import BatchPolicy, cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from schemas.bulk import BulkClassify
    from schemas.bulk_manifest import Tally
    from schemas.bulk_plan import BatchLimits
    from tasks.classify.model import Scored, TicketClassifier
    from tasks.classify.pipeline import ClassifyPipeline
    from worker.jobs import Job
    from worker.slots import Slot
    from worker.storage.labelling import Results, Span
    from worker.storage.tables import Text, Texts

WINDOWS_AHEAD: Final = 2  # in the engine, while another is read
SCORE_DIGITS: Final = 4
MEASURED_ROWS: Final = 256
ASSUMED_ROWS_PER_S: Final = 100.0  # where none of the measured rows could be run

_DIGEST_BYTES: Final = 16


@dataclass(slots=True)
class Labelled:
    """What became of the rows of a span: a value for each row in every column.

    Attributes:
        ranked: the best labels with their scores, where there may be several.
        tokens: of all rows, as the model reads them.
        model_tokens: of the rows that the model has read: none twice.
        same_as: row → the earlier row of the same text, whose result it takes.
        busy_s: Σ duration of the batches.
    """

    labels: list[str | None] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    ranked: list[object] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    errors: list[ErrorCode | None] = field(default_factory=list)
    tokens: int = 0
    model_tokens: int = 0
    same_as: dict[int, int] = field(default_factory=dict)
    busy_s: float = 0.0

    def results(self) -> Results:
        """Return the result columns by their names in `schemas.bulk.RESULT_COLUMNS`."""
        return {
            "label": self.labels,
            "score": self.scores,
            "scores": self.ranked,
            "truncated": self.truncated,
            "error_code": self.errors,
        }

    def tally(self) -> Tally:
        """Return the counts over the rows."""
        return tally_rows(
            self.labels,
            self.scores,
            self.errors,
            truncated=sum(self.truncated),
            tokens=self.tokens,
            repeated=len(self.same_as),
        )

    def make_room(self, rows: int) -> int:
        """Add rows that nothing is known of yet; return the number of the first."""
        first = len(self.labels)
        for column in self._found():
            column.extend([None] * rows)
        self.truncated.extend([False] * rows)
        return first

    def repeat(self) -> None:
        """Give every repeated row the result of its first."""
        for row, first in self.same_as.items():
            for column in self._found():
                column[row] = column[first]

    def _found(self) -> tuple[list[Any], ...]:  # lists of different kinds
        return self.labels, self.scores, self.ranked, self.errors


class Labeller:
    """Labels spans of rows for one message. Not thread-safe; blocks while the engine works.

    Args:
        slot: the message's share of the engine.
        pipeline: tokenises.
        model: the lane.
        request: what is asked of the rows.
        limits: how they are planned.
    """

    def __init__(
        self,
        slot: Slot,
        pipeline: ClassifyPipeline,
        model: TicketClassifier,
        request: BulkClassify,
        limits: BatchLimits,
    ) -> None:
        self._slot = slot
        self._pipeline = pipeline
        self._model = model
        self._request = request
        self._window_rows = limits.planning_window
        self._policy = BatchPolicy(**limits.model_dump())

    def label(self, span: Span) -> Labelled:
        """Return what the model says of each row of a span.

        Raises:
            TableError, StorageError: the rows cannot be read.
            Draining: the worker is stopping.
            Cancelled: the message was called off.
        """
        columns = text_columns(self._request)
        read = span.table.texts(columns, span.start, span.stop, self._window_rows)
        windows = _windows(read, columns, self._window_rows)
        labelled, first_rows = Labelled(), dict[bytes, int]()
        running: deque[Job] = deque()
        while (window := self._start(windows, labelled, first_rows)) is not None:
            running.append(window)
            if len(running) > WINDOWS_AHEAD:
                self._collect(running.popleft(), labelled)
        for window in running:
            self._collect(window, labelled)
        labelled.repeat()
        return labelled

    def rows_per_s(self, span: Span) -> float:
        """Return how many rows a second the whole worker labels, as it is now, by the first rows of a span."""
        labelled = self.label(replace(span, stop=min(span.stop, span.start + MEASURED_ROWS)))
        ran = sum(code is None for code in labelled.errors) - len(labelled.same_as)
        if ran <= 0 or not labelled.busy_s:
            return ASSUMED_ROWS_PER_S
        return ran * self._slot.engine.runners / labelled.busy_s

    def _start(self, windows: Iterator[Texts], labelled: Labelled, first_rows: dict[bytes, int]) -> Job | None:
        """Read, tokenise and plan a window, and hand it to the engine; None after the last."""
        job = self._slot.job(self._pipeline)
        with self._slot.working(job):
            window = next(windows, None)
            if window is None:
                return None
            job.items = self._items(job, window, labelled)
            distinct = self._distinct(job.items, labelled, first_rows)
            batches = list(cut(distinct, self._policy))
        self._slot.submit(self._model.name, job, batches)
        return job

    def _items(self, job: Job, window: Texts, labelled: Labelled) -> list[Item]:
        """Return an item for each row that has a text; note what is wrong with the others."""
        texts = row_texts(window, self._request)
        first = labelled.make_room(len(texts))
        readable = []
        for row, text in enumerate(texts, first):
            if isinstance(text, ItemFailed):
                labelled.errors[row] = text.code
            else:
                readable.append((Item(job, row, None, self._model.name), text))
        for (item, _), outcome in zip(readable, isolate(readable, self._encoded), strict=True):
            if isinstance(outcome, ItemFailed):
                item.outcome = outcome
        return [item for item, _ in readable]

    def _encoded(self, rows: Sequence[tuple[Item, str]]) -> Sequence[object]:
        items, texts = [item for item, _ in rows], [text for _, text in rows]
        self._pipeline.encode(self._model.name, items, texts, self._request.truncation)
        return rows

    def _distinct(self, items: Sequence[Item], labelled: Labelled, first_rows: dict[bytes, int]) -> list[Item]:
        """Return the items that are to run; note the tokens of all, and whose result a repeated one takes."""
        distinct = []
        for item in items:
            if isinstance(item.outcome, ItemFailed):
                labelled.errors[item.index] = item.outcome.code
                continue
            labelled.tokens += item.length
            labelled.truncated[item.index] = item.truncated
            first = first_rows.setdefault(_digest(item), item.index) if self._request.dedupe else item.index
            if first == item.index:
                distinct.append(item)
            else:
                labelled.same_as[item.index] = first
            item.key = None
        return distinct

    def _collect(self, job: Job, labelled: Labelled) -> None:
        """Wait for a window and note its outcomes."""
        self._slot.wait(job)
        labelled.model_tokens += job.real_tokens
        for item in job.items:
            row, outcome = item.index, item.outcome
            if isinstance(outcome, ItemFailed):
                labelled.errors[row] = outcome.code
            elif outcome is not None:
                found: Any = labels_of(self._model, cast("Scored", outcome), self._request, SCORE_DIGITS)
                labelled.labels[row], labelled.scores[row] = found["label"], found["score"]
                labelled.ranked[row] = found.get("scores")
        labelled.busy_s += job.inference_s
        job.let_go()


def row_texts(window: Texts, request: BulkClassify) -> list[str | ItemFailed]:
    """Return what the model reads of each row, or why there is nothing.

    A null subject or body is no loss beside the other: a column cannot be left out for one row.
    """
    columns = [[(column, text) for text in window[column]] for column in text_columns(request)]
    return [_row_text(parts) for parts in zip(*columns, strict=True)]


def _row_text(parts: Sequence[tuple[str, Text]]) -> str | ItemFailed:
    given = [
        text if isinstance(text, ItemFailed) else checked(text, column) for column, text in parts if text is not None
    ]
    if not given:
        return ItemFailed(ErrorCode.NULL_TEXT, "the row's text is null")
    return joined(given)


def _windows(read: Iterable[Texts], columns: Sequence[str], rows: int) -> Iterator[Texts]:
    """Yield windows of `rows` rows, the last one shorter, however the table cut what it read."""
    waiting: Texts = {column: [] for column in columns}
    for batch in read:
        for column in columns:
            waiting[column] += batch[column]
        while len(waiting[columns[0]]) >= rows:
            yield {column: waiting[column][:rows] for column in columns}
            waiting = {column: waiting[column][rows:] for column in columns}
    if waiting[columns[0]]:
        yield waiting


def _digest(item: Item) -> bytes:
    return blake2b(cast("bytes", item.key), digest_size=_DIGEST_BYTES).digest()
