"""Looks at the queues every few seconds and publishes what it saw: for Prometheus, and for an autoscaler.

It reads and remembers nothing but its last look, so any number of them may run. It needs no worker: with none alive the
queues are still there, and so is the rate that workers have measured before. While the broker does not answer it is
live, not ready, and says nothing about queues: an autoscaler must not act on what was.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import structlog
from pydantic_core import to_json
from redis.exceptions import RedisError

from schemas.names import TASK_BULK_CLASSIFY, TASK_BULK_OCR
from worker import keys, metrics
from worker.errors import ConfigError
from worker.ops.health import Verdict
from worker.ops.http import JSON, Answer, Request, not_found
from worker.ops.look import VALUES, Look, QueueLook
from worker.ops.probes import metrics_page, verdict_page
from worker.ops.publishing import Publisher
from worker.ops.queues import survey
from worker.ops.scaling import DEFAULT_TARGETS, Targets, backlog_s
from worker.rates import relative_sizes
from worker.tallies import Tallies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import redis

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 5.0
STALE_S: Final = 4 * LOOK_EVERY_S  # a look that hangs ends after the client's timeouts
LEAST_S: Final = 0.001  # KEDA drops what is below a thousandth: a message of bulk work would wake nobody
BULK_TASKS: Final = (TASK_BULK_CLASSIFY, TASK_BULK_OCR)
MEASURED: Final = "measured"
CONFIGURED: Final = "configured"
QUEUES: Final = "/queues/"


class Exporter:
    """The pages of the exporter, and the thread that looks.

    Args:
        client: without `decode_responses`; used by the thread alone.
        queues: to publish, whether anybody serves them or not; those that live workers serve come along.
        default_rates: messages a second by queue, until workers have measured them.
        lease_s: of the workers.
        clock: monotonic seconds.

    Raises:
        ConfigError: one of the queues has no default rate.
    """

    def __init__(
        self,
        client: redis.Redis,
        queues: Sequence[str],
        default_rates: Mapping[str, float],
        lease_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if missing := sorted(set(queues) - default_rates.keys()):
            text = f"BATCHMILL_DEFAULT_RATES says nothing of {', '.join(missing)}: add {missing[0]}=MESSAGES_A_SECOND"
            raise ConfigError(text)
        self._client = client
        self._queues = tuple(queues)
        self._default_rates = dict(default_rates)
        self._lease_s = lease_s
        self._clock = clock
        self._look: Look | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="look", daemon=True)
        tallies = Tallies()
        for metric, values in VALUES.items():
            tallies.watch(metric, lambda values=values: values(self.last()))  # type: ignore[misc] # bound per round
        self._publisher = Publisher(tallies, metrics.Side.EXPORTER)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look every few seconds inside the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()

    def look(self) -> None:
        """Look once. Blocks on the broker, within the client's timeouts."""
        try:
            self._look = self._seen()
        except (RedisError, OSError, ValueError) as exc:  # ValueError: somebody else wrote to our keys
            log.warning("exporter.blind", error=type(exc).__name__)
            self._look = None

    def last(self) -> Look | None:
        """Return the last look; None if it failed or is too old."""
        look = self._look
        return look if look is not None and self._clock() - look.at_s <= STALE_S else None

    def respond(self, request: Request) -> Answer:
        """Return a page; does not block."""
        if request.path.startswith(QUEUES):
            return self._queue_page(request.path.removeprefix(QUEUES), request.query)
        match request.path:
            case "/live":
                return verdict_page(self._live())
            case "/ready":
                blind = ("the last look at the broker failed",)
                return verdict_page(Verdict(() if self.last() is not None else blind))
            case "/metrics":
                return metrics_page(self._publisher, request)
            case _:
                return not_found(request)

    def _live(self) -> Verdict:
        has_ended = self._thread.ident is not None and not self._thread.is_alive()
        return Verdict(("the thread that looks at the queues has ended",) if has_ended else ())

    def _queue_page(self, name: str, query: str) -> Answer:
        try:
            targets = _targets(query)
        except ValueError as exc:
            return _refusal(HTTPStatus.BAD_REQUEST, str(exc))
        look = self.last()
        if look is None:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the last look at the broker failed")
        queue = look.queues.get(name)
        if queue is None:
            return _refusal(HTTPStatus.NOT_FOUND, "no such queue: name it in BATCHMILL_QUEUES")
        wanted_s = backlog_s(queue.demand, targets)
        if wanted_s is None:
            text = "nobody knows how fast a worker is: name the queue in BATCHMILL_DEFAULT_RATES"
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, text)
        shown = {
            "queue": name,
            "waiting": queue.waiting,
            "in_flight": queue.state.in_flight,
            "busy_workers": round(sum(queue.state.load), 2),
            "backlog_s": float(f"{max(wanted_s, LEAST_S):.6g}") if wanted_s else 0.0,
            "oldest_age_s": queue.oldest_age_s,
            "workers": queue.workers,
        }
        return Answer(to_json(shown) + b"\n", JSON)

    def _keep_looking(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(LOOK_EVERY_S)

    def _seen(self) -> Look:
        at_s = self._clock()
        seen = survey(self._client, self._queues, self._lease_s)
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hgetall(keys.SERVICE_RATES)
            pipe.hgetall(keys.MESSAGE_SIZES)
            for task in BULK_TASKS:
                pipe.zscore(keys.BULK_DONE, task)
            stored, opened, *ends_s = pipe.execute()
        measured = {queue.decode(): float(rate) for queue, rate in stored.items()}
        queues = {}
        for state in seen.queues:
            rate, source = self._rate(state.queue, measured)
            workers = sum(state.queue in one.queues and one.silent_s <= self._lease_s for one in seen.workers)
            queues[state.queue] = QueueLook(state, workers, rate, source, relative_sizes(state.queue, opened))
        return Look(queues, {task: end_s or 0.0 for task, end_s in zip(BULK_TASKS, ends_s, strict=True)}, at_s)

    def _rate(self, queue: str, measured: Mapping[str, float]) -> tuple[float | None, str]:
        rate = measured.get(queue, 0.0)
        return (rate, MEASURED) if 0 < rate < math.inf else (self._default_rates.get(queue), CONFIGURED)


def _targets(query: str) -> Targets:
    """Return what a query says.

    Raises:
        ValueError: it is not understood; the text says what would be.
    """
    said = dict(parse_qsl(query, keep_blank_values=True))
    if not said.keys() <= {"target_s", "bulk_target_s"}:
        raise ValueError("the query may say target_s=SECONDS and bulk_target_s=SECONDS, nothing else")
    return replace(DEFAULT_TARGETS, **{name: _seconds(value) for name, value in said.items()})


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise ValueError("target_s and bulk_target_s are seconds, above 0")


def _refusal(status: HTTPStatus, reason: str) -> Answer:
    return Answer(to_json({"ok": False, "reasons": [reason]}) + b"\n", JSON, status)
