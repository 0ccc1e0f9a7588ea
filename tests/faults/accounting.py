"""The books of a fault run: every job that was sent, every end that was announced, and what is left over.

Jobs are sent by a stock Celery producer and their results read as any consumer finds them. What they should be comes
from an oracle.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from schemas.names import QUEUE_CLASSIFY, TASK_CLASSIFY
from tests.faults.announcements import Announcements
from tests.services import wait_until
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.faults.fleet import Kill
    from tests.faults.models import Run
    from tests.faults.oracle import Oracle
    from tests.faults.servers import Server

AT_ONCE: Final = 1000
ENDS: Final = frozenset({"SUCCESS", "FAILURE", "REVOKED"})
SCORE_TOLERANCE: Final = 0.001
Json = dict[str, Any]  # what json.loads makes


@dataclass(frozen=True)
class Account:
    """What became of the jobs.

    Attributes:
        jobs: that the broker had acknowledged.
        results: by task id, as the backend stores them.
        lost: jobs without an end.
        doubled: jobs whose end was announced more than once in one life of the server.
        wrong: jobs that succeeded with another label or score than without faults.
        left_over: keys that hold messages though every job has ended.
    """

    jobs: int
    results: dict[str, Json]
    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    left_over: list[str]

    def failures(self) -> dict[str, str]:
        """Return by task id why jobs failed."""
        return {
            task_id: str(meta["result"].get("exc_message"))
            for task_id, meta in self.results.items()
            if meta["status"] != "SUCCESS"
        }

    def item_errors(self) -> dict[str, str]:
        """Return by task id the error codes of tickets that failed in jobs that succeeded."""
        tickets = {
            task_id: meta["result"]["results"][0]
            for task_id, meta in self.results.items()
            if meta["status"] == "SUCCESS"
        }
        return {task_id: ticket["error"]["code"] for task_id, ticket in tickets.items() if "error" in ticket}

    def assert_clean(self, failures: int = 0) -> None:
        """Fail unless each job ended once and rightly, `failures` of them in a failure, and nothing is left over."""
        assert not self.lost, f"{len(self.lost)} of {self.jobs} lost: {self.lost[:5]}"
        assert not self.doubled, f"{len(self.doubled)} doubled: {self.doubled[:5]}"
        assert not self.wrong, f"{len(self.wrong)} wrong: {self.wrong[:5]}"
        assert len(self.failures()) == failures, dict(list(self.failures().items())[:5])
        assert not self.left_over, self.left_over


class Books:
    """Sends jobs and accounts for them.

    Args:
        server: the broker; addressed directly, whatever the workers' way to it is.
        oracle: knows the right labels.
    """

    def __init__(self, server: Server, oracle: Oracle) -> None:
        self._server = server
        self._oracle = oracle
        self._app = Celery("producer", broker=server.url, set_as_current=False)
        self._announcements = Announcements(server)
        self.texts: dict[str, str] = {}
        self.results: dict[str, Json] = {}

    def send(self, texts: Iterable[str], *, per_s: float = math.inf, **options: object) -> list[str]:
        """Send a job for each text, at most so many a second; return the ids that the broker has acknowledged."""
        sent = []
        start_s = time.monotonic()
        for number, text in enumerate(texts):
            time.sleep(max(0.0, start_s + number / per_s - time.monotonic()))
            task_id = str(uuid4())
            self.texts[task_id] = text
            if self.push(task_id, **options):
                sent.append(task_id)
            else:
                del self.texts[task_id]
        return sent

    def push(self, task_id: str, **options: object) -> bool:
        """Send the job of a known id, once more perhaps; return whether the broker has acknowledged it."""
        arguments = {"tickets": [{"id": "1", "text": self.texts[task_id]}]}
        try:
            self._app.send_task(
                TASK_CLASSIFY, kwargs=arguments, task_id=task_id, queue=QUEUE_CLASSIFY, retry=False, **options
            )
        except OperationalError:
            return False
        return True

    def ended(self, ids: Iterable[str] | None = None) -> bool:
        """Return whether every job, or each of `ids`, has its end. False while the server is away."""
        try:
            return all(self._read(list(self.texts) if ids is None else list(ids)))
        except redis.RedisError:
            return False

    def wait_ended(self, timeout_s: float, ids: Sequence[str] | None = None) -> None:
        """Wait until every job, or each of `ids`, has its end; the account shows those that have none in time."""
        until_s = time.monotonic() + timeout_s
        while not self.ended(ids) and time.monotonic() < until_s:
            time.sleep(0.1)

    def announced_s(self, task_id: str) -> float | None:
        """Return when a job's end was first announced."""
        ends = self._announcements.ends.get(task_id)
        return ends[0][1] if ends else None

    def held_by(self, pid: int) -> frozenset[str]:
        """Return the jobs that a process holds, or has in its inboxes."""
        try:
            with self._server.client() as client:
                return frozenset(_held_by(client, pid))
        except redis.RedisError:
            return frozenset()

    def close(self) -> Account:
        """Close the books: what has come of every job. Waits a moment for what is swept or committed last."""
        list(self._read(list(self.texts)))
        with suppress(AssertionError):
            wait_until(lambda: not self._left_over(), 10.0)
        self._announcements.close()
        return Account(
            jobs=len(self.texts),
            results=self.results,
            lost=[task_id for task_id in self.texts if task_id not in self.results],
            doubled=self._announcements.doubled(),
            wrong=[task_id for task_id, meta in self.results.items() if not self._is_right(task_id, meta)],
            left_over=self._left_over(),
        )

    def stop(self) -> None:
        """Let go of the connections."""
        self._announcements.close()
        self._app.close()

    def _read(self, ids: Sequence[str]) -> Iterator[bool]:
        """Read the results that are not known yet, bit by bit; yield whether a bit was complete."""
        wanted = [task_id for task_id in ids if task_id not in self.results]
        with self._server.client() as client:
            for start in range(0, len(wanted), AT_ONCE):
                bit = wanted[start : start + AT_ONCE]
                values: Any = client.mget([keys.RESULT_PREFIX + task_id for task_id in bit])
                metas = {task_id: json.loads(value) for task_id, value in zip(bit, values, strict=True) if value}
                ended = {task_id: meta for task_id, meta in metas.items() if meta["status"] in ENDS}
                self.results.update(ended)
                yield len(ended) == len(bit)

    def _left_over(self) -> list[str]:
        with self._server.client() as client:
            found = [key for key in keys.lists(QUEUE_CLASSIFY) if client.llen(key)]
            for pattern in ("unacked:", "unacked_index:", "inbox:"):
                found += [key.decode() for key in client.scan_iter(f"{keys.PREFIX}{pattern}*", count=AT_ONCE)]
            return found

    def _is_right(self, task_id: str, meta: Json) -> bool:
        """Say whether a success is what the model alone says; a failed job or item is not for us to judge."""
        if meta["status"] != "SUCCESS" or "error" in meta["result"]["results"][0]:
            return True
        (result,) = meta["result"]["results"]
        expected = self._oracle(self.texts[task_id])
        return bool(result["label"] == expected.label and abs(result["score"] - expected.score) < SCORE_TOLERANCE)


def restarts_s(kills: Sequence[Kill], runs: Sequence[Run], announced_s: Callable[[str], float | None]) -> list[float]:
    """Return for each job that a killed worker held how long after the kill it ran again."""
    runs_of: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        for task_id in run.job_ids:
            runs_of[task_id].append(run)
    found = []
    for kill in kills:
        for task_id in kill.held:
            again = [run.at_s for run in runs_of[task_id] if run.pid != kill.pid]
            end_s = announced_s(task_id)
            later = [at_s for at_s in (*again, end_s or 0.0) if at_s > kill.at_s]
            if later:
                found.append(min(later) - kill.at_s)
    return found


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that `share` of all do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _held_by(client: Any, pid: int) -> Iterable[str]:  # noqa: ANN401 - redis-py's answers are typed for async too
    mark = f"/{pid}/"
    for key in client.scan_iter(f"{keys.PREFIX}unacked:*", count=AT_ONCE):
        for held in client.hvals(key):
            task_id = held.split(b"\n", 2)[1].decode()
            state = client.get(keys.JOB_PREFIX + task_id) or b""
            if mark in state.decode():
                yield task_id
    for key in client.scan_iter(f"{keys.PREFIX}inbox:*", count=AT_ONCE):
        if mark in key.decode():
            yield from (json.loads(message)["headers"]["id"] for message in client.lrange(key, 0, -1))
