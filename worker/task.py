"""The Celery task whose body is a batch: `run` hands over what the engine has already worked out.

Celery's tracer runs it once per job, after inference, so links, chains, chords, retries, events and signals are
Celery's own. Requests hide their arguments: a stock producer puts their repr into the headers, and Celery shows it in
events, logs, `inspect` and Flower. What a worker publishes itself, the next task of a chain say, has no such repr: its
arguments are what the task before returned, and that may be a document's text.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from celery import Task
from celery.app.amqp import AMQP
from celery.worker.request import Request
from kombu.utils.json import dumps

from schemas.errors import ErrorCode, MessageError
from worker.errors import NotBatched
from worker.isolation import message_failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from worker.jobs import Job

HIDDEN = "<hidden>"
LARGEST_ITEM_BYTES = 10_000  # of its share of a result: an id of 256 escaped characters, and a hundred labels


class Answer:
    """A job's result on its way through Celery's tracer, which shows results in events. JSON like the dict itself.

    Args:
        content: the result, in JSON types.
    """

    __slots__ = ("content",)

    def __init__(self, content: dict[str, object]) -> None:
        self.content = content

    def __json__(self) -> dict[str, object]:
        """Return what kombu's encoder writes: a link or a chord gets the result as its producer would read it."""
        return self.content

    def __repr__(self) -> str:
        return HIDDEN


class PrivateRequest(Request):  # type: ignore[misc] # celery has no types
    """A request that never shows its arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        super().__init__(*args, **options)
        self._argsrepr = self._kwargsrepr = HIDDEN
        self._request_dict["argsrepr"] = self._request_dict["kwargsrepr"] = HIDDEN

    def info(self, safe: bool = False) -> dict[str, object]:  # noqa: ARG002, FBT001, FBT002 - Celery's own signature
        """Describe the request for `inspect`, always without its arguments."""
        shown: dict[str, object] = super().info(safe=True)
        return shown


class PrivateAmqp(AMQP):  # type: ignore[misc] # celery has no types
    """Writes messages whose headers do not quote their arguments, nor do the events of their sending."""

    def as_task_v2(self, *args: Any, **options: Any) -> object:  # noqa: ANN401 - Celery's own signature
        """Return a message of task protocol 2."""
        return super().as_task_v2(*args, **options | {"argsrepr": HIDDEN, "kwargsrepr": HIDDEN})


class PrivateTask(Task):  # type: ignore[misc] # celery has no types
    """Base of every task of the application, Celery's built-in ones included."""

    abstract = True
    Request = "worker.task:PrivateRequest"
    resultrepr_maxsize = 1  # a repr of the result would show recognised text in events


class BatchTask(PrivateTask):
    """A task that the batch pool runs through the engine; its pipeline is registered under its name."""

    abstract = True
    acks_late = True
    throws = (MessageError,)

    def run(self, *args: object, **kwargs: object) -> Answer:  # noqa: ARG002 - the pipeline has read them
        """Return the job's result, or raise why its message failed.

        Raises:
            MessageError: the message, or its result, is wrong as a whole.
            NotBatched: called outside the batch pool (eager mode, another pool).
        """
        job: Job | None = getattr(_current, "job", None)
        if job is None:
            raise NotBatched(f"{self.name} runs only in worker.pool:BatchPool; start it with `batchmill worker`")
        if job.error is not None:
            raise job.error
        try:
            result = job.pipeline.complete(job)
        except BaseException as exc:  # noqa: BLE001 - Celery would end the worker over some, and quote the others
            raise message_failure(exc) from None
        self._check_size(job, result)
        return Answer(result)

    def _check_size(self, job: Job, result: object) -> None:
        """Refuse a result that is too large to be recorded; one of few items need not be measured."""
        limit = self.app.settings.max_result_bytes
        if len(job.items) * LARGEST_ITEM_BYTES > limit and len(dumps(result)) > limit:
            raise MessageError(
                ErrorCode.RESULT_TOO_LARGE, f"the limit is {limit} bytes: send fewer tickets, or fewer pages, a message"
            )


_current = threading.local()


@contextmanager
def answering(job: Job | None) -> Iterator[None]:
    """Let the body of the batched task that is traced inside the block answer for `job`."""
    _current.job = job
    try:
        yield
    finally:
        _current.job = None
