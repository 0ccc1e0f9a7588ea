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
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog
from celery import states
from celery.backends.redis import RedisBackend, SentinelBackend
from kombu.transport.virtual import QoS
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from worker.task import answering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from celery.worker.request import Request

    from worker.jobs import Job

log = structlog.get_logger(__name__)

GROUP = 256  # jobs of one transaction
PASSING_ERRORS = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, OutOfMemoryError)


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
    context.update({"args": args, "kwargs": kwargs, "is_eager": False}, **(embed or {}))
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


def commit(backend: Any, traced: Sequence[Traced]) -> None:  # noqa: ANN401 - a capturing backend
    """Write and publish the results of a group and acknowledge its messages, all or nothing.

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


def _write(pipe: Any, stored: Stored) -> None:  # noqa: ANN401 - redis-py's pipeline
    pipe.set(stored.key, stored.value, ex=stored.ttl_s or None)
    pipe.publish(stored.key, stored.value)


def _succeeded(backend: Any, keys: Sequence[str]) -> set[str]:  # noqa: ANN401 - a capturing backend
    """Return the keys that hold a success already; a success is never overwritten, as in stock Celery."""
    values = backend.client.mget(keys) if keys else []
    return {
        key
        for key, value in zip(keys, values, strict=True)
        if value and backend.decode(value)["status"] == states.SUCCESS
    }


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
    """

    def __init__(self, app: Any, on_committed: Callable[[Sequence[Traced]], None]) -> None:  # noqa: ANN401 - Celery
        self._app = app
        self._on_committed = on_committed
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
        while jobs := self._next_group():
            traced = [one for job in jobs for one in self._trace(job)]
            if self._commit(traced):
                self._on_committed(traced)

    def _next_group(self) -> list[Job]:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), GROUP))]

    def _trace(self, job: Job) -> Iterator[Traced]:
        """Trace one job; where even that fails, its message stays with the broker and comes again."""
        try:
            yield trace(job)
        except BaseException as exc:  # noqa: BLE001 - one job's trouble must not end the thread that finishes all
            log.critical("job.trace_failed", job=job.id, error=type(exc).__name__)

    def _commit(self, traced: Sequence[Traced]) -> bool:
        pause_s = 0.1
        while True:
            try:
                commit(self._app.backend, traced)
            except PASSING_ERRORS as exc:
                log.warning("delivery.retrying", jobs=len(traced), error=type(exc).__name__, pause_s=pause_s)
            except RedisError as exc:
                log.error("delivery.failed", jobs=len(traced), error=type(exc).__name__)  # noqa: TRY400 - no payloads
                return False
            else:
                return True
            if monotonic() + pause_s > self._give_up_s:
                return False
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, 2.0)
