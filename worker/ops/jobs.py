"""What became of a message by its task id, and the way to call it off.

A job is in one place: it waits in a list, a worker holds it, it is a dead letter, or it has ended; the job key says
which claim holds, the result what came of it. Waiting messages have no key yet, so they are looked for in the lists.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker import keys
from worker.ops import dead
from worker.ops.queues import inboxes
from worker.ops.scripts import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import redis

AT_ONCE = 200
_HELD = re.compile(r"H (?P<worker>\S+):\d+ (?P<queue>\S+) (?P<tag>\S+) (?P<crashes>\d+)")


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A message in a list. `enqueued_at_s` is Unix seconds by the producer's word; None without one."""

    task_id: str
    task: str
    queue: str
    list_key: str
    enqueued_at_s: float | None
    message_bytes: int


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A message that `worker` holds under a lease that it renewed `lease_age_s` ago."""

    task_id: str
    queue: str
    list_key: str
    tag: str
    worker: str
    crashes: int
    lease_age_s: float
    message_bytes: int


@dataclass(frozen=True, slots=True)
class JobReport:
    """What is known of a task id.

    Attributes:
        task_id: the id.
        where: in which place its message is; None = in none, so it has ended, or never was.
        ended: the job key says that it has come to its end.
        status: of its result, in Celery's words; None = there is none, or it has expired.
        result_bytes: size of the result.
        result_expires_s: seconds until the result is forgotten.
        cancelled: whether somebody has called it off.
    """

    task_id: str
    where: WaitingJob | HeldJob | dead.DeadLetter | None
    ended: bool
    status: str | None
    result_bytes: int
    result_expires_s: int | None
    cancelled: bool

    @property
    def place(self) -> str:
        """Where it is, in one word."""
        match self.where:
            case WaitingJob():
                return "waiting"
            case HeldJob():
                return "held"
            case dead.DeadLetter():
                return "dead"
            case None:
                return "ended" if self.ended or self.status else "unknown"


def waiting(client: redis.Redis, queue: str, limit: int) -> list[WaitingJob]:
    """Return up to `limit` messages that wait, in the order in which they are served."""
    found: list[WaitingJob] = []
    taken = inboxes(client)
    for list_key in keys.lists(queue):
        for key in (*taken.get(list_key, ()), list_key):
            found += [_waiting(queue, list_key, one) for one in run(client, "waiting", [key], -limit, -1, "")[::-1]]
    return found[:limit]


def waiting_ids(client: redis.Redis, queue: str) -> frozenset[str]:
    """Return the task ids of all messages that wait, in steps that the server does not feel.

    What is taken meanwhile may be missing: look at the job keys afterwards.
    """
    found: set[str] = set()
    for list_key in keys.lists(queue):
        for portion in _portions(client, list_key, ""):
            found.update(entry[0].decode(errors="replace") for entry in portion)
    taken = inboxes(client)  # asked for last: a message goes from its list through an inbox to its worker
    for list_key in keys.lists(queue):
        for key in taken.get(list_key, ()):
            found.update(entry[0].decode(errors="replace") for entry in run(client, "waiting", [key], 0, -1, ""))
    return frozenset(found)


def held(client: redis.Redis, queue: str, limit: int) -> list[HeldJob]:
    """Return up to `limit` messages that workers hold, the longest without a renewal first."""
    seconds, micros = client.time()
    jobs: list[HeldJob] = []
    for first in range(0, limit, AT_ONCE):
        last = min(first + AT_ONCE, limit) - 1
        found = run(client, "held", [keys.unacked(queue), keys.unacked_index(queue)], keys.JOB_PREFIX, first, last)
        jobs += [_held(queue, one, seconds + micros / 1e6) for one in found]
        if len(found) <= last - first:
            break
    return jobs


def show(client: redis.Redis, queues: Iterable[str], task_id: str) -> tuple[JobReport, bytes | None]:
    """Return what is known of a task id, and its message while there is one.

    A message that waits is looked for in every list of `queues`, in steps that the server does not feel.
    """
    with client.pipeline() as pipe:
        pipe.get(keys.JOB_PREFIX + task_id)
        pipe.get(keys.RESULT_PREFIX + task_id)
        pipe.ttl(keys.RESULT_PREFIX + task_id)
        pipe.zscore(keys.CANCELLED, task_id)
        state, result, ttl_s, cancelled = pipe.execute()
    where, message = _locate(client, queues, task_id, (state or b"").decode())
    report = JobReport(
        task_id=task_id,
        where=where,
        ended=state == b"D",
        status=json.loads(result)["status"] if result else None,
        result_bytes=len(result or b""),
        result_expires_s=ttl_s if ttl_s >= 0 else None,
        cancelled=cancelled is not None,
    )
    return report, message


def cancel(client: redis.Redis, task_ids: Iterable[str], ttl_s: int) -> None:
    """Call jobs off: their messages end as revoked when a worker takes them, or before it records what they came to.

    Args:
        client: any client.
        task_ids: known here or not; a message may come later.
        ttl_s: how long it is remembered.
    """
    forget_s = client.time()[0] + ttl_s
    client.zadd(keys.CANCELLED, dict.fromkeys(task_ids, forget_s))


def _locate(
    client: redis.Redis, queues: Iterable[str], task_id: str, state: str
) -> tuple[WaitingJob | HeldJob | dead.DeadLetter | None, bytes | None]:
    if holder := _HELD.fullmatch(state):
        value: Any = client.hget(keys.unacked(holder["queue"]), holder["tag"])
        renewed_s = client.zscore(keys.unacked_index(holder["queue"]), holder["tag"])
        if value is not None and renewed_s is not None:
            list_key, _, message = value.split(b"\n", 2)
            entry = [holder["tag"].encode(), list_key, task_id.encode(), len(message), renewed_s, state.encode()]
            seconds, micros = client.time()
            return _held(holder["queue"], entry, seconds + micros / 1e6), message
    if letter := dead.find(client, queues, task_id):
        return letter
    return next(_search(client, queues, task_id), (None, None))


def _search(client: redis.Redis, queues: Iterable[str], task_id: str) -> Iterator[tuple[WaitingJob, bytes]]:
    for queue in queues:
        for list_key in keys.lists(queue):
            for portion in _portions(client, list_key, task_id):
                for one in portion:
                    yield _waiting(queue, list_key, one), one[-1]


def _portions(client: redis.Redis, list_key: str, task_id: str) -> Iterator[list[Any]]:
    """Look through a list from the newest message on, so that what comes and goes hides nothing."""
    first = 0
    while first < client.llen(list_key):
        yield run(client, "waiting", [list_key], first, first + AT_ONCE - 1, task_id)
        first += AT_ONCE


def _waiting(queue: str, list_key: str, entry: Sequence[Any]) -> WaitingJob:
    task_id, task, enqueued_at, message_bytes, _ = entry
    return WaitingJob(
        task_id=task_id.decode(errors="replace"),
        task=task.decode(errors="replace"),
        queue=queue,
        list_key=list_key,
        enqueued_at_s=float(enqueued_at) if enqueued_at else None,
        message_bytes=message_bytes,
    )


def _held(queue: str, entry: Sequence[Any], now_s: float) -> HeldJob:
    tag, list_key, task_id, message_bytes, renewed_s, state = entry
    holder = _HELD.fullmatch(state.decode())
    return HeldJob(
        task_id=task_id.decode(errors="replace"),
        queue=queue,
        list_key=list_key.decode(),
        tag=tag.decode(errors="replace"),
        worker=holder["worker"] if holder else "",
        crashes=int(holder["crashes"]) if holder else 0,
        lease_age_s=max(0.0, now_s - float(renewed_s)),
        message_bytes=message_bytes,
    )
