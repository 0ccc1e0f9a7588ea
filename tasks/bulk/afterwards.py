"""The end of a shard that no task lives to see: its message went to the dead letters.

The worker that swept it looks, as the end of every shard does, whether the run is done: the last part may have been
there before its worker died.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from redis.exceptions import RedisError

from schemas.bulk import parse_bulk_shard
from schemas.errors import MessageError
from schemas.names import QUEUE_BULK, QUEUE_BULK_OCR, TASK_BULK_SHARD
from tasks.bulk.coordinator import load_plan
from tasks.bulk.done import note_done
from tasks.bulk.finaliser import finalise
from worker.errors import BatchmillError
from worker.ops import dead, envelopes

if TYPE_CHECKING:
    import redis

    from schemas.bulk import BulkShard
    from tasks.bulk.stores import Stores

log = structlog.get_logger(__name__)

NEWEST = 100
QUEUES = (QUEUE_BULK, QUEUE_BULK_OCR)


def finalise_runs_of_dead_shards(client: redis.Redis, stores: Stores) -> None:
    """Look whether the runs of the newest dead shards are done. Blocks on the stores; raises nothing of theirs."""
    for plan_uri, plan_key in sorted({(shard.plan, shard.plan_key) for shard in _dead_shards(client)}):
        try:
            plan = load_plan(stores.of(plan_uri), plan_uri, plan_key)
            note_done(client, plan.request, finalise(stores.of(plan.request.output), plan))
        except (BatchmillError, MessageError) as exc:
            log.warning("run.unfinished", plan=plan_uri, error=str(exc))


def _dead_shards(client: redis.Redis) -> list[BulkShard]:
    try:
        newest = [(queue, one.task_id) for queue in QUEUES for one in dead.newest(client, queue, NEWEST)]
        letters = [dead.find(client, [queue], task_id) for queue, task_id in newest]
    except RedisError as exc:
        log.warning("run.unfinished", error=type(exc).__name__)
        return []
    shards = (_shard(message) for _, message in filter(None, letters))
    return [shard for shard in shards if shard is not None]


def _shard(message: bytes) -> BulkShard | None:
    envelope, body = envelopes.describe(message), envelopes.body(message)
    if envelope is None or envelope.task != TASK_BULK_SHARD:
        return None
    try:
        args, kwargs, _ = _parts(body)
        return parse_bulk_shard(args, kwargs)
    except (TypeError, ValueError, MessageError):
        return None


def _parts(body: Any) -> tuple[list[object], dict[str, object], object]:  # noqa: ANN401 - JSON of any kind
    args, kwargs, embed = body
    return list(args), dict(kwargs), embed
