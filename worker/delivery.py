"""From a finished job to its recorded result: one trace per job, one transaction per group of jobs.

The finisher thread runs Celery's tracer for each finished job while the result backend captures what it would store,
then writes and publishes all results and acknowledges all messages in a single MULTI/EXEC. Broker and result backend
are the same Redis database, so a result is recorded exactly when its message is gone. What the tracer publishes (links,
chains, chord parts, retries) goes out by Celery's own steps, before the result, as in stock Celery.

This is the seam for another way to commit: `Finisher` needs nothing but `commit(traced)`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from celery import states
from celery.app.trace import ExceptionInfo
from celery.backends.redis import RedisBackend, SentinelBackend
from kombu.exceptions import DecodeError
from kombu.transport.virtual import QoS
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from worker.protocol import EMBEDDED
from worker.task import answering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery.worker.request import Request

    from worker.jobs import Job

log = structlog.get_logger(__name__)

T = TypeVar("T")

GROUP = 256  # jobs of one transaction


@dataclass(frozen=True, slots=True)
class Stored:
    """A result that the backend would have written: its key, its encoded value, its lifetime in seconds (0 = none)."""

    key: str
    value: str | bytes
    ttl_s: int


@dataclass(slots=True)
class Traced:
    """A finished job after Celery's tracer.

    Attributes:
        request: Celery's request.
        answer: what Celery's pool callback expects: (failed, return value or exception info, seconds).
        stored: results to write.
        settled: whether the message is done; False leaves it to Celery (Reject).
    """

    request: Request
    answer: tuple[int, object, float]
    stored: list[Stored] = field(default_factory=list)
    settled: bool = True


class _Capturing:
    """A Redis result backend that can hold results back. One instance per thread, as Celery makes them."""

    captured: list[Stored] | None = None

    def _store_result(
        self,
        task_id: str,
        result: object,
        state: str,
        traceback: str | None = None,
        request: Any = None,  # noqa: ANN401 - Celery's context
        **options: Any,  # noqa: ANN401 - Celery's own signature
    ) -> object:
        if self.captured is None:
            return super()._store_result(task_id, result, state, traceback, request=request, **options)  # type: ignore[misc]
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)  # type: ignore[attr-defined]
        meta["task_id"] = task_id
        ttl_s = self.failure_expires if state == states.FAILURE else self.expires  # type: ignore[attr-defined]
        self.captured.append(Stored(self.get_key_for_task(task_id), self.encode(meta), ttl_s or 0))  # type: ignore[attr-defined]
        return result


class CapturingBackend(_Capturing, RedisBackend):  # type: ignore[misc] # celery has no types
    """Celery's Redis backend, able to hold results back for one write."""


class CapturingSentinelBackend(_Capturing, SentinelBackend):  # type: ignore[misc] # celery has no types
    """Celery's Sentinel backend, able to hold results back for one write."""


def trace(job: Job) -> Traced:
    """Run Celery's tracer for a finished job, holding its result back. The job's `context` is its request."""
    request: Any = job.context
    task = request.task
    backend = task.backend
    args, kwargs, embed = request._payload  # noqa: SLF001 - decoded once, on receipt
    context = request.request_dict
    context.update({"args": args, "kwargs": kwargs, "is_eager": False})
    context.update({name: (embed or {}).get(name) for name in EMBEDDED})
    backend.captured = []
    try:
        with answering(job):
            value, info, seconds, shown = task.__trace__(request.id, args, kwargs, context)
        stored = backend.captured
    finally:
        backend.captured = None
    if info is None:
        return Traced(request, (0, shown, seconds), stored)
    return Traced(request, (1, value, seconds), stored, settled=info.state != states.REJECTED)


def untraceable(job: Job, exc: BaseException) -> Traced:
    """Return the failure of a job whose end Celery's tracer could not make, such as one with a broken chord."""
    request: Any = job.context
    backend = request.task.backend
    code = ErrorCode.OUT_OF_MEMORY if isinstance(exc, MemoryError) else ErrorCode.INTERNAL
    error = MessageError(code, f"Celery could not end the task: {type(exc).__name__}")
    backend.captured = []
    try:
        if request.store_errors:
            backend.store_result(request.id, error, states.FAILURE, request=request)
        return Traced(request, (1, ExceptionInfo((MessageError, error, exc.__traceback__)), 0.0), backend.captured)
    finally:
        backend.captured = None


def commit(backend: Any, traced: Sequence[Traced]) -> bool:  # noqa: ANN401 - a capturing backend
    """Write and publish the results of a group and acknowledge its messages, all or nothing; return True.

    Raises:
        RedisError: nothing was written.
    """
    traced = [one for one in traced if not one.request.acknowledged]  # revoked with terminate meanwhile
    already = _succeeded(backend, [stored.key for one in traced for stored in one.stored])
    with backend.client.pipeline(transaction=True) as pipe:
        for one in traced:
            for stored in one.stored:
                if stored.key not in already:
                    _write(pipe, stored)
            if one.settled:
                channel = one.request.message.channel
                tag = one.request.message.delivery_tag
                pipe.zrem(channel.unacked_index_key, tag).hdel(channel.unacked_key, tag)
        pipe.execute()
    for one in traced:
        if one.settled:
            _acknowledge_locally(one.request)
    return True


def _write(pipe: Any, stored: Stored) -> None:  # noqa: ANN401 - redis-py's pipeline
    pipe.set(stored.key, stored.value, ex=stored.ttl_s or None)
    pipe.publish(stored.key, stored.value)


def _succeeded(backend: Any, keys: Sequence[str]) -> set[str]:  # noqa: ANN401 - a capturing backend
    """Return the keys that hold a success already; a success is never overwritten, as in stock Celery."""
    values = backend.client.mget(keys) if keys else []
    return {key for key, value in zip(keys, values, strict=True) if value and _is_success(backend, value)}


def _is_success(backend: Any, value: bytes) -> bool:  # noqa: ANN401 - a capturing backend
    try:
        return bool(backend.decode(value)["status"] == states.SUCCESS)
    except (DecodeError, KeyError, TypeError):  # somebody else's value, under an id that its producer chose
        return False


def _acknowledge_locally(request: Any) -> None:  # noqa: ANN401 - Celery's request
    """Tell kombu and Celery that the message is gone."""
    message = request.message
    QoS.ack(message.channel.qos, message.delivery_tag)
    message._state = "ACK"  # noqa: SLF001 - kombu's own ack would go to Redis once more
    request.acknowledged = True


class Finisher:
    """The thread that traces and commits. While Redis is away it waits and tries again.

    Args:
        app: the Celery application.
        on_committed: called from this thread with what is recorded.
        on_broken: called from this thread when it dies.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401 - Celery's application
        on_committed: Callable[[Sequence[Traced]], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._app = app
        self._on_committed = on_committed
        self._on_broken = on_broken
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._give_up_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="finisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Let a finished job be traced and committed. Never blocks."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Commit what is there, then stop. Blocks for at most `timeout_s`."""
        with self._changed:
            self._closed = True
            self._give_up_s = monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while jobs := self._next_group():
                traced = [one for one in map(self._trace, jobs) if one is not None]
                if self._insist(partial(commit, self._app.backend, traced)):
                    self._on_committed(traced)
        except BaseException as exc:
            log.critical("finisher.died", error=type(exc).__name__)
            self._on_broken("the finisher's thread died")
            raise

    def _next_group(self) -> list[Job]:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), GROUP))]

    def _trace(self, job: Job) -> Traced | None:
        """Trace one job; what fails there, but for Redis, is its outcome and not the end of this thread."""
        try:
            return self._insist(partial(trace, job))
        except BaseException as exc:  # noqa: BLE001 - makes the job's outcome
            log.warning("job.trace_failed", job=job.id, error=type(exc).__name__)
            return untraceable(job, exc)

    def _insist(self, act: Callable[[], T]) -> T | None:
        """Return what `act` returns; while Redis refuses, try again, until the worker stops: then return None."""
        pause_s = 0.1
        while True:
            try:
                return act()
            except RedisError as exc:  # away, full, read-only, or its disk is: somebody will mend it
                log.warning("delivery.retrying", error=type(exc).__name__, pause_s=pause_s)
            if monotonic() + pause_s > self._give_up_s:
                return None
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, 2.0)
