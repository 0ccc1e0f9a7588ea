"""Which of many task ids have come to their end: for whoever sends work again, and must not double what still runs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

AT_ONCE = 500


def ended(client: redis.Redis, task_ids: Iterable[str]) -> frozenset[str]:
    """Return those that have a result, are recorded as ended, or were called off. After a result's lifetime none is.

    Args:
        client: one that returns bytes.
        task_ids: any number; asked for in portions.
    """
    found: set[str] = set()
    waiting = iter(task_ids)
    while portion := list(islice(waiting, AT_ONCE)):
        with client.pipeline(transaction=False) as pipe:
            pipe.mget([keys.JOB_PREFIX + task_id for task_id in portion])
            for task_id in portion:
                pipe.exists(keys.RESULT_PREFIX + task_id)
            pipe.zmscore(keys.CANCELLED, portion)
            answers: list[Any] = pipe.execute()
        states, results, cancels = answers[0], answers[1:-1], answers[-1]
        for task_id, state, result, cancel in zip(portion, states, results, cancels, strict=True):
            if state == b"D" or result or cancel is not None:
                found.add(task_id)
    return frozenset(found)
