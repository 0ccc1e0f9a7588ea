"""What is known of many task ids at once: who holds them, and what they came to.

For whoever sends work again and must not double what still waits or runs, and for whoever watches it. A message that
waits for the first time has left no trace but itself: `worker.ops.jobs.waiting_ids` finds those.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

AT_ONCE = 500
_DONE: Final = "D"
_HELD: Final = "H"


@dataclass(frozen=True, slots=True)
class Known:
    """What the database knows of a task id.

    Attributes:
        place: the first letter of its job key, see `worker.keys.JOB_PREFIX`; empty if it has none.
        status: of its result, in Celery's words; None if there is none.
        result: what it returned, or how it failed, as the JSON that Celery writes.
        is_cancelled: whether somebody has called it off.
    """

    place: str = ""
    status: str | None = None
    result: object = None
    is_cancelled: bool = False

    @property
    def is_held(self) -> bool:
        """Whether a worker holds its message."""
        return self.place == _HELD

    @property
    def is_given_back(self) -> bool:
        """Whether it ran and waits to run again."""
        return self.place not in ("", _DONE, _HELD)

    @property
    def is_over(self) -> bool:
        """Whether no message of this id will run: it has ended, or was called off."""
        return self.is_cancelled or self.place == _DONE or (not self.place and self.status is not None)

    @property
    def error(self) -> str | None:
        """How it failed, in one sentence; None if it did not."""
        if not isinstance(self.result, dict) or "exc_type" not in self.result:
            return None
        said = self.result.get("exc_message")
        words = said if isinstance(said, list) else [said]
        return " ".join(str(word) for word in words if word) or str(self.result["exc_type"])


def known(client: redis.Redis, task_ids: Iterable[str]) -> dict[str, Known]:
    """Return what is known of each of these ids. After a result's lifetime it is nothing.

    Args:
        client: one that returns bytes.
        task_ids: any number; asked for in portions.
    """
    found: dict[str, Known] = {}
    waiting = iter(task_ids)
    while portion := list(islice(waiting, AT_ONCE)):
        with client.pipeline(transaction=False) as pipe:
            pipe.mget([keys.JOB_PREFIX + task_id for task_id in portion])
            pipe.mget([keys.RESULT_PREFIX + task_id for task_id in portion])
            pipe.zmscore(keys.CANCELLED, portion)
            answers: list[Any] = pipe.execute()
        for task_id, state, result, cancel in zip(portion, *answers, strict=True):
            meta = json.loads(result) if result else {}
            found[task_id] = Known(
                place=(state or b"")[:1].decode(),
                status=meta.get("status"),
                result=meta.get("result"),
                is_cancelled=cancel is not None,
            )
    return found


def ended(client: redis.Redis, task_ids: Iterable[str]) -> frozenset[str]:
    """Return those that have come to their end or were called off; one that is to be tried again has not.

    Args:
        client: one that returns bytes.
        task_ids: any number; asked for in portions.
    """
    return frozenset(task_id for task_id, one in known(client, task_ids).items() if one.is_over)
