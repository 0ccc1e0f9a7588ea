"""The dead letters: messages that were in inference at too many deaths of their worker.

Each is kept until somebody puts it back or removes it, the newest 10,000 of a queue at most.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from worker import keys
from worker.ops.scripts import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import redis

AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter without its message.

    Attributes:
        task_id: its id.
        queue, list_key: where it came from, and goes back to.
        reason: why it was given up, such as `worker_died`.
        crashes: how often a worker died while it was in inference.
        worker: the last of them.
        at_s: when it was given up, in Unix seconds by the server's clock.
        message_bytes: size of the message.
    """

    task_id: str
    queue: str
    list_key: str
    reason: str
    crashes: int
    worker: str
    at_s: float
    message_bytes: int


class Requeued(IntEnum):
    """What became of a letter that was to be put back."""

    MISSING = 0
    DONE = 1
    HELD = 2
    SUCCEEDED = 3


def newest(client: redis.Redis, queue: str, limit: int) -> list[DeadLetter]:
    """Return up to `limit` dead letters of a queue, the newest first."""
    letters: list[DeadLetter] = []
    for first in range(0, limit, AT_ONCE):
        last = min(first + AT_ONCE, limit) - 1
        found = run(client, "letters", [keys.dead(queue), keys.dead_index(queue)], first, last)
        letters += [_letter(json.loads(record)) for record in found]
        if len(found) <= last - first:
            break
    return letters


def find(client: redis.Redis, queues: Iterable[str], task_id: str) -> tuple[DeadLetter, bytes] | None:
    """Return the dead letter of a task and its message; None if there is none."""
    for queue in queues:
        record: Any = client.hget(keys.dead(queue), task_id)
        if record is not None:
            fields = json.loads(record.decode(errors="surrogateescape"))
            message = fields.pop("message").encode(errors="surrogateescape")
            return _letter(fields | {"message_bytes": len(message)}), message
    return None


def ids(client: redis.Redis, queue: str, older_than_s: float = 0.0) -> list[str]:
    """Return the task ids of a queue's dead letters that were given up at least so many seconds ago."""
    seconds, micros = client.time()
    before_s = seconds + micros / 1e6 - older_than_s
    found: list[Any] = client.zrangebyscore(keys.dead_index(queue), "-inf", before_s)
    return [one.decode() for one in found]


def requeue(client: redis.Redis, queues: Iterable[str], task_ids: Sequence[str]) -> dict[str, Requeued]:
    """Put dead letters back to the end of their lists: crash count, job key and failed result are forgotten.

    A letter stays where it is if a worker holds a message of its id, or one has succeeded since.
    """
    answers = dict.fromkeys(task_ids, Requeued.MISSING)
    for queue in queues:
        for start in range(0, len(task_ids), AT_ONCE):
            asked = task_ids[start : start + AT_ONCE]
            pair = [keys.dead(queue), keys.dead_index(queue)]
            found = run(client, "requeue", pair, keys.JOB_PREFIX, keys.RESULT_PREFIX, *asked)
            answers |= {one: Requeued(answer) for one, answer in zip(asked, found, strict=True) if answer}
    return answers


def remove(client: redis.Redis, queues: Iterable[str], task_ids: Sequence[str]) -> int:
    """Delete dead letters for good; return how many there were. Their failed results stay until they expire."""
    removed = 0
    for queue in queues:
        for start in range(0, len(task_ids), AT_ONCE):
            some = task_ids[start : start + AT_ONCE]
            with client.pipeline() as pipe:
                pipe.hdel(keys.dead(queue), *some)
                pipe.zrem(keys.dead_index(queue), *some)
                removed += pipe.execute()[0]
    return removed


def messages(client: redis.Redis, queue: str) -> Iterator[tuple[str, bytes]]:
    """Yield the task id and the message of every dead letter of a queue."""
    for task_id in ids(client, queue):
        found = find(client, [queue], task_id)
        if found is not None:
            yield task_id, found[1]


def _letter(record: Mapping[str, object]) -> DeadLetter:
    return DeadLetter(
        task_id=str(record["task_id"]),
        queue=str(record["queue"]),
        list_key=str(record["list"]),
        reason=str(record["reason"]),
        crashes=int(str(record["crashes"])),
        worker=str(record["worker"]),
        at_s=float(str(record["at"])),
        message_bytes=int(str(record["message_bytes"])),
    )
