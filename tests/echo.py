"""A model that answers in capitals, its pipeline, and a listener: a whole engine without onnxruntime or Celery.

Some words make the model misbehave, each in the way that a real one does.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from schemas.errors import ErrorCode, MessageError
from tests.services import wait_until
from worker.errors import ItemFailed
from worker.jobs import Item, Job
from worker.metrics import TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.jobs import Cancellation

NOT_FINITE: Final = ItemFailed(ErrorCode.MODEL_OUTPUT_NOT_FINITE, "not a number")


class Panic(BaseException):
    """What a Rust panic looks like to Python: no `Exception`."""


class EchoModel:
    """Implements `worker.jobs.Model`: each text in capitals.

    `nan` is an `ItemFailed` of its own; `boom`, `huge` and `panic` fail the whole batch; `missing` gets no output;
    `endless` runs until it is cancelled, `stuck` until `close`.

    Attributes:
        calls: the texts of every call, in the order in which they began.
    """

    max_length = 512

    def __init__(self, name: str = "echo") -> None:
        self.name = name
        self.info: Mapping[str, str] = {"name": name}
        self.calls: list[list[str]] = []
        self._open = threading.Event()
        self._open.set()
        self._closed = threading.Event()

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        """Answer, when nothing holds it."""
        texts = [str(feature) for feature in features]
        self.calls.append(texts)
        cancelled = threading.Event()
        cancellation.hook(lambda: (cancelled.set(), self._open.set()))
        self._open.wait()
        if "stuck" in texts:
            self._closed.wait()
        if "endless" in texts:
            cancelled.wait()
        if cancelled.is_set():
            raise RuntimeError("terminated")
        return [self._answer(text) for text in texts if text != "missing"]

    def sample(self, batch_size: int, length: int) -> list[object]:
        """Return rows for warm-up."""
        return ["x" * length] * batch_size

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let every call that begins inside the block wait for its end."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def close(self) -> None:
        """Let every call end."""
        self._open.set()
        self._closed.set()

    def _answer(self, text: str) -> object:
        match text:
            case "nan":
                return NOT_FINITE
            case "boom":
                raise ValueError(text)
            case "huge":
                raise MemoryError(text)
            case "panic":
                raise Panic(text)
            case _:
                return text.upper()


class EchoPipeline:
    """Implements `worker.jobs.Pipeline`: a message is `texts`, and a lane for each or none.

    `unreadable` is an `ItemFailed`; `untokenisable` a panic of the whole portion.

    Attributes:
        portions: the texts of every call of `prepare`.
        ahead_max: most items that were prepared and had no outcome yet.
    """

    reads = TOKENS

    def __init__(self, lane: str = "echo", *, shared: bool = False) -> None:
        self._lane = lane
        self._shared = shared
        self._prepared: deque[Item] = deque()
        self.portions: list[list[str]] = []
        self.ahead_max = 0

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Make an item of each text."""
        texts = kwargs.get("texts")
        if args or not isinstance(texts, list):
            raise MessageError(ErrorCode.INVALID_MESSAGE, "texts is no list")
        if texts == ["unopenable"]:
            raise Panic(texts)
        lanes = kwargs.get("lanes", [self._lane] * len(texts))
        assert isinstance(lanes, list)
        job.items = [Item(job, index, text, lane) for index, (text, lane) in enumerate(zip(texts, lanes, strict=True))]

    def prepare(self, items: Sequence[Item]) -> None:
        """Take a text as it is, one token a character."""
        self.portions.append([str(item.source) for item in items])
        if "untokenisable" in self.portions[-1]:
            raise Panic(self.portions[-1])
        self._prepared.extend(items)
        self.ahead_max = max(self.ahead_max, sum(item.outcome is None for item in self._prepared))
        for item in items:
            if item.source == "unreadable":
                item.outcome = ItemFailed(ErrorCode.NOT_TEXT, "unreadable")
            item.features = item.source
            item.length = len(str(item.source))
            item.key = item.source if self._shared else None

    def spawn(self, item: Item) -> Sequence[Item]:
        """Make an item of each word, for the lane `words`; `unspawnable` fails, `empty` gives rise to nothing."""
        if item.source == "unspawnable":
            raise Panic(item.source)
        words = [] if item.source == "empty" else str(item.source).split()
        children = [Item(item.job, index, word, "words", features=word, length=1) for index, word in enumerate(words)]
        for child in children:
            if child.source == "unreadable":
                child.outcome = ItemFailed(ErrorCode.NOT_TEXT, "unreadable")
        item.outcome = children
        return children

    def complete(self, job: Job) -> dict[str, object]:
        """Return the outcomes in order; an error by its code."""
        return {"outcomes": outcomes(job)}


def outcomes(job: Job) -> list[object]:
    """What became of each item: the answer, or the code of its error."""
    return [item.outcome.code if isinstance(item.outcome, ItemFailed) else item.outcome for item in job.items]


class Heard:
    """Implements `worker.listening.Listener`: keeps what it is told.

    Attributes:
        events: (event, job) in order.
        broken_by: reasons.
        cancelled: jobs that nobody waits for.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, Job]] = []
        self.broken_by: list[str] = []
        self.cancelled: set[Job] = set()
        self._cancels_all = False

    def is_cancelled(self, job: Job) -> bool:
        """Return whether the test has cancelled `job`."""
        return self._cancels_all or job in self.cancelled

    def cancel_all(self) -> None:
        """Cancel every job, those to come included."""
        self._cancels_all = True

    def started(self, jobs: Sequence[Job]) -> None:
        """Keep it."""
        self.events.extend(("started", job) for job in jobs)

    def finished(self, job: Job) -> None:
        """Keep it."""
        self.events.append(("finished", job))

    def running(self, jobs: Sequence[Job], *, alone: bool) -> None:
        pass

    def dropped(self, job: Job) -> None:
        """Keep it."""
        self.events.append(("dropped", job))

    def broken(self, reason: str) -> None:
        """Keep it."""
        self.broken_by.append(reason)

    def of(self, job: Job) -> list[str]:
        """Everything heard about `job`."""
        return [event for event, about in self.events if about is job]

    def wait_for(self, event: str, *jobs: Job, timeout_s: float = 10.0) -> None:
        """Block until each of `jobs` had `event`."""
        wait_until(lambda: all(event in self.of(job) for job in jobs), timeout_s, event)


def message(pipeline: EchoPipeline, name: str = "job") -> Job:
    """A job that has just come."""
    return Job(name, pipeline, monotonic())
