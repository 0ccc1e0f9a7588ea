"""Remembers, in the database, when a bulk run was last finalised: for whoever watches that nights end well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from worker import keys

if TYPE_CHECKING:
    import redis

    from tasks.bulk.finaliser import Verdict

log = structlog.get_logger(__name__)


def note_done(client: redis.Redis, verdict: Verdict) -> None:
    """Note the end of a run that has its manifest; of several runs the latest end counts. Idempotent.

    Raises nothing of the database's: the run is done all the same, and `bulk resume` notes it again.
    """
    if verdict.manifest is None:
        return
    try:
        client.zadd(keys.BULK_DONE, {keys.BULK_DONE_MEMBER: verdict.manifest.finished_at.timestamp()}, gt=True)
    except RedisError as exc:
        log.warning("run.end_not_noted", job_id=verdict.manifest.job_id, error=type(exc).__name__)
