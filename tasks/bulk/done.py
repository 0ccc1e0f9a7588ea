"""Remembers, in the database, when a run of each task was last finalised: for whoever watches that nights end well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from tasks.bulk.sending import task_of
from worker import keys

if TYPE_CHECKING:
    import redis

    from schemas.bulk_plan import BulkRequest
    from tasks.bulk.finaliser import Verdict

log = structlog.get_logger(__name__)


def note_done(client: redis.Redis, request: BulkRequest, verdict: Verdict) -> None:
    """Note the end of a run that has its manifest; of several runs of a task the latest end counts. Idempotent.

    Raises nothing of the database's: the run is done all the same, and `bulk resume` notes it again.
    """
    if verdict.manifest is None:
        return
    try:
        client.zadd(keys.BULK_DONE, {task_of(request): verdict.manifest.finished_at.timestamp()}, gt=True)
    except RedisError as exc:
        log.warning("run.end_not_noted", job_id=verdict.manifest.job_id, error=type(exc).__name__)
