"""The task ids of a run's shards, so that a shard which still waits or runs is never sent twice.

    JOB_ID:SHARD:ATTEMPT

An id ends once: what is sent again under an id that has ended is dropped. So a shard that failed is sent again under
the next attempt, and one that has not ended under the same: two who resume a run at once send the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

ATTEMPTS_MAX: Final = 1_000


def task_id(job_id: str, shard: int, attempt: int) -> str:
    """Return the id of one attempt at a shard."""
    return f"{job_id}:{shard}:{attempt}"


def open_attempts(
    job_id: str, shards: Iterable[int], ended: Callable[[list[str]], Collection[str]]
) -> dict[int, tuple[int, str]]:
    """Return of each shard the first attempt that has not ended, and its task id.

    Args:
        job_id: the run's.
        shards: indices of its shards.
        ended: returns those of some task ids that have ended.
    """
    found: dict[int, tuple[int, str]] = {}
    left = list(shards)
    for attempt in range(ATTEMPTS_MAX):
        ids = {shard: task_id(job_id, shard, attempt) for shard in left}
        over = ended(list(ids.values())) if ids else ()
        found |= {shard: (attempt, name) for shard, name in ids.items() if name not in over}
        left = [shard for shard, name in ids.items() if name in over]
        if not left:
            break
    return dict(sorted(found.items()))
