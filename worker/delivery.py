"""From a finished job to its recorded end: one trace per job, one commit per group of jobs.

Celery's tracer runs for each job while its result and everything that it publishes (links, chains, retries) are held
back; then one script records, publishes and acknowledges what this worker's claims still own. A claim that was lost
meanwhile fences all of it off. Tasks that are not batched run on threads of their own and end the same way.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import structlog
from celery import states
from celery.app.trace import ExceptionInfo
from celery.backends.redis import RedisBackend, SentinelBackend
from kombu.transport.virtual import QoS
from pydantic_core import PydanticSerializationError, to_json
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from worker.ledger import Commit
from worker.protocol import EMBEDDED
from worker.task import Answer, answering
from worker.transport import holding_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from celery.worker.request import Request

    from worker.custody import Custody
    from worker.jobs import Job
    from worker.ledger import Held

log = structlog.get_logger(__name__)

T = TypeVar("T")

GROUP = 256  # jobs of one commit
LINGER_S = 0.02  # while more work waits, ends are collected for so long
PORTION_BYTES = 8 * 1024 * 1024  # written by one commit
FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 2.0
FENCED = 0
CANCELLED = 2


@dataclass(slots=True)
class Traced:
    """A job after Celery's tracer.

    Attributes:
        request: Celery's request.
        answer: what Celery's pool callback expects: (failed, return value or exception info, seconds).
        results: key, encoded value and lifetime in seconds of what the backend would have stored.
        messages: list and message of what the task published.
        settled: whether the message is done; False leaves it to Celery (Reject).
        state: what Celery calls its end: SUCCESS, FAILURE, RETRY, REJECTED, IGNORED; REVOKED if it was called off.
    """

    request: Request
    answer: tuple[int, object, float] = (0, None, 0.0)
    results: list[tuple[str, str | bytes, int]] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    settled: bool = True
    state: str = states.SUCCESS


class _Ended(NamedTuple):
    """A request, and what the engine made of it; None = the task's own body does the work."""

    request: Any
    job: Job | None


class _Capturing:
    """A Redis result backend that can hold results back. One instance per thread, as Celery makes them."""

    captured: list[tuple[str, str | bytes, int]] | None = None

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
        if isinstance(result, Answer):
            encoded = self._encoded_answer(task_id, result, state, request)
        else:
            meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)  # type: ignore[attr-defined]
            meta["task_id"] = task_id
            encoded = self.encode(meta)  # type: ignore[attr-defined]
        ttl_s = self.failure_expires if state == states.FAILURE else self.expires  # type: ignore[attr-defined]
        self.captured.append((self.get_key_for_task(task_id), encoded, ttl_s or 0))  # type: ignore[attr-defined]
        return result

    def _encoded_answer(self, task_id: str, answer: Answer, state: str, request: Any) -> str | bytes:  # noqa: ANN401 - Celery's context
        """Return what Celery would store, without asking its settings and its clock, which costs the most here."""
        meta = {
            "status": state,
            "result": answer.content,
            "traceback": None,
            "children": self.current_task_children(request),  # type: ignore[attr-defined]
            "date_done": datetime.now(UTC).isoformat(),
        }
        if request.group:
            meta["group_id"] = request.group
        if request.parent_id:
            meta["parent_id"] = request.parent_id
        meta["task_id"] = task_id
        try:
            return to_json(meta)
        except PydanticSerializationError:  # a lone surrogate in an id
            encoded: str = self.encode(meta)  # type: ignore[attr-defined]
            return encoded

    def on_chord_part_return(self, request: Any, state: str, result: object, **options: Any) -> object:  # noqa: ANN401 - Celery's own signature
        """Count a chord's part, and let the chord's body or failure out at once.

        Celery counts a part once however often it runs, but forgets the chord in the same breath as it sends the body:
        a body that was held back for the commit would be lost with its worker. Sent twice, it is told by its id.
        """
        captured, self.captured = self.captured, None
        try:
            with holding_back(None):
                return super().on_chord_part_return(request, state, result, **options)  # type: ignore[misc]
        finally:
            self.captured = captured


class CapturingBackend(_Capturing, RedisBackend):  # type: ignore[misc] # celery has no types
    """Celery's Redis backend, able to hold results back for one commit."""


class CapturingSentinelBackend(_Capturing, SentinelBackend):  # type: ignore[misc] # celery has no types
    """Celery's Sentinel backend, able to hold results back for one commit."""


def trace(request: Any, job: Job | None = None) -> Traced:  # noqa: ANN401 - Celery's request
    """Run Celery's tracer for a request, holding back its result and what it publishes.

    Args:
        request: what Celery received.
        job: what the engine made of it; None = the task's own body runs now.
    """
    task = request.task
    backend = task.backend
    args, kwargs, embed = request._payload  # noqa: SLF001 - decoded once, on receipt
    context = request.request_dict
    context.update({"args": args, "kwargs": kwargs, "is_eager": False})
    context.update({name: (embed or {}).get(name) for name in EMBEDDED})
    traced = Traced(request)
    backend.captured = traced.results
    try:
        with answering(job), holding_back(traced.messages):
            value, info, seconds, shown = task.__trace__(request.id, args, kwargs, context)
    finally:
        backend.captured = None
    traced.answer = (0, shown, seconds) if info is None else (1, value, seconds)
    if info is not None:
        traced.state = info.state
    traced.settled = traced.state != states.REJECTED
    return traced


def untraceable(request: Any, exc: BaseException) -> Traced:  # noqa: ANN401 - Celery's request
    """Return the failure of a job whose end Celery's tracer could not make, such as one with a broken chord."""
    backend = request.task.backend
    code = ErrorCode.OUT_OF_MEMORY if isinstance(exc, MemoryError) else ErrorCode.INTERNAL
    error = MessageError(code, f"Celery could not end the task: {type(exc).__name__}")
    answer = (1, ExceptionInfo((MessageError, error, exc.__traceback__)), 0.0)
    traced = Traced(request, answer, state=states.FAILURE)
    backend.captured = traced.results
    try:
        if request.store_errors:
            backend.store_result(request.id, error, states.FAILURE, request=request)
    finally:
        backend.captured = None
    return traced


def commit(custody: Custody, traced: Sequence[Traced]) -> list[Traced]:
    """Record what a group of jobs came to and acknowledge their messages; return those that are recorded.

    The others are fenced off: the claim is lost, or the message was revoked with terminate while it ran.

    Raises:
        RedisError: nothing was recorded.
    """
    settled = [one for one in traced if one.settled and not one.request.acknowledged]
    holdings = [custody.get(_tag(one)) for one in settled]
    held = [holding.held for holding in holdings if holding]
    ours = [one for one, holding in zip(settled, holdings, strict=True) if holding]
    commits = list(map(_commit_of, ours, held))
    answers = custody.ledger.commit(commits) if commits else []
    for one in ours:
        _acknowledge_locally(one.request)
    custody.forget(held)
    for one, answer in zip(ours, answers, strict=True):
        if answer == CANCELLED:
            one.state = states.REVOKED
    fenced = {id(one) for one, answer in zip(ours, answers, strict=True) if answer == FENCED}
    if fenced:
        log.warning("delivery.fenced", jobs=len(fenced))
    left_to_celery = [one for one in traced if not one.settled]
    return [one for one in ours if id(one) not in fenced] + left_to_celery


def _commit_of(traced: Traced, held: Held) -> Commit:
    republished = any(f'"correlation_id": "{held.task_id}"' in message for _, message in traced.messages)
    return Commit(held, traced.results, traced.messages, republished)


def _portions(traced: Iterable[Traced]) -> Iterator[list[Traced]]:
    """Cut a group where what it writes becomes too much for one command."""
    portion: list[Traced] = []
    portion_bytes = 0
    for one in traced:
        portion.append(one)
        portion_bytes += sum(len(value) for _, value, _ in one.results) + sum(len(text) for _, text in one.messages)
        if portion_bytes >= PORTION_BYTES:
            yield portion
            portion, portion_bytes = [], 0
    if portion:
        yield portion


def _tag(traced: Traced) -> str:
    tag: str = traced.request.message.delivery_tag
    return tag


def _acknowledge_locally(request: Any) -> None:  # noqa: ANN401 - Celery's request
    """Tell kombu and Celery that the message is gone."""
    message = request.message
    QoS.ack(message.channel.qos, message.delivery_tag)
    message._state = "ACK"  # noqa: SLF001 - kombu's own ack would go to Redis once more
    request.acknowledged = True


class Finisher:
    """The thread that traces and commits. While Redis is away it waits and tries again.

    Args:
        custody: what this worker holds.
        on_committed: called from this thread with a group, and with those of it that are recorded.
        on_broken: called from this thread when it dies.
        busy: whether more work waits, so that nobody waits for one commit in particular.

    Attributes:
        worked_s: what it took to trace and commit what `on_committed` is told of, its waits for Redis aside.
        committed_s: what of that was the commit.
    """

    def __init__(
        self,
        custody: Custody,
        on_committed: Callable[[Sequence[Traced], Sequence[Traced]], None],
        on_broken: Callable[[str], None],
        *,
        busy: Callable[[], bool],
    ) -> None:
        self.worked_s = self.committed_s = 0.0
        self._busy = busy
        self._custody = custody
        self._on_committed = on_committed
        self._on_broken = on_broken
        self._ended: deque[_Ended | Traced] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._give_up_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="finisher", daemon=True)

    @property
    def thread(self) -> threading.Thread:
        """The thread."""
        return self._thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, request: Any, job: Job | None = None) -> None:  # noqa: ANN401 - Celery's request
        """Let a job that the engine has finished be traced and committed. Never blocks."""
        self._put(_Ended(request, job))

    def run(self, request: Any) -> None:  # noqa: ANN401 - Celery's request
        """Run a task that is not batched, on this very thread, and let it be committed. Blocks while the task runs."""
        self._put(self._trace(_Ended(request, None)))

    def stop(self, timeout_s: float) -> None:
        """Commit what is there, then stop. Blocks for at most `timeout_s`."""
        with self._changed:
            self._closed = True
            self._give_up_s = monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s)

    def _put(self, ended: _Ended | Traced | None) -> None:
        with self._changed:
            if ended is not None:
                self._ended.append(ended)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while group := self._next_group():
                attempts = (one if isinstance(one, Traced) else self._trace(one) for one in group)
                for traced in _portions(one for one in attempts if one is not None):
                    recorded = self._insist(partial(commit, self._custody, traced))
                    if recorded is not None:
                        self._on_committed(traced, recorded)
                    self.worked_s = 0.0
        except BaseException as exc:
            log.critical("finisher.died", error=type(exc).__name__)
            self._on_broken("the finisher's thread died")
            raise

    def _next_group(self) -> list[_Ended | Traced]:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._closed)
        if len(self._ended) < GROUP and not self._closed and self._busy():
            sleep(LINGER_S)  # not on the condition: each end would wake it
        return [self._ended.popleft() for _ in range(min(len(self._ended), GROUP))]

    def _trace(self, ended: _Ended) -> Traced | None:
        """Trace one job; what fails there, but for Redis, is its outcome and not the end of the thread."""
        try:
            return self._insist(partial(trace, ended.request, ended.job))
        except BaseException as exc:  # noqa: BLE001 - makes the job's outcome
            log.warning("job.trace_failed", task_id=ended.request.id, error=type(exc).__name__)
            return untraceable(ended.request, exc)

    def _insist(self, act: Callable[[], T]) -> T | None:
        """Return what `act` returns; while Redis refuses, try again, until the worker stops: then return None."""
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = monotonic()
            try:
                done = act()
            except RedisError as exc:  # away, full, read-only, or its disk is: somebody will mend it
                log.warning("delivery.retrying", error=type(exc).__name__, pause_s=pause_s)
            else:
                self.committed_s = monotonic() - began_s  # of a group, the commit is what it does last
                self.worked_s += self.committed_s
                return done
            if monotonic() + pause_s > self._give_up_s:
                return None
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
