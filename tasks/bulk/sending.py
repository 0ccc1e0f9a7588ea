"""Sends the shards of a run that are missing, from the task that planned it or from the command line."""

from __future__ import annotations

from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from schemas.bulk import BulkShard
from schemas.bulk_ocr import BulkOcr
from schemas.names import (
    ENQUEUED_AT_HEADER,
    PRIORITY_BULK_SHARD,
    QUEUE_BULK,
    QUEUE_BULK_OCR,
    TASK_BULK_CLASSIFY,
    TASK_BULK_OCR,
    TASK_BULK_SHARD,
)
from tasks.bulk.attempts import open_attempts
from tasks.bulk.layout import plan_uri
from tasks.bulk.planning import plan_key
from worker.ops.ends import ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.bulk_plan import BulkPlan, BulkRequest


def queue_of(request: BulkRequest) -> str:
    """Return the queue of a run's messages: only workers that can do its work serve it."""
    return QUEUE_BULK_OCR if isinstance(request, BulkOcr) else QUEUE_BULK


def task_of(request: BulkRequest) -> str:
    """Return the task that plans a run."""
    return TASK_BULK_OCR if isinstance(request, BulkOcr) else TASK_BULK_CLASSIFY


def enqueue(app: Any, plan: BulkPlan, shards: Sequence[int]) -> list[str]:  # noqa: ANN401 - any Celery application
    """Send a message for each of these shards of a run, unless it still waits or runs; return their task ids.

    Args:
        app: its result backend knows what has ended.
        plan: the run's.
        shards: those whose parts are missing.
    """
    attempts = open_attempts(plan.job_id, shards, partial(ended, app.backend.client))
    uri, key = plan_uri(plan.request.output), plan_key(plan)
    for shard, (_, task_id) in attempts.items():
        app.send_task(
            TASK_BULK_SHARD,
            kwargs=BulkShard(plan=uri, plan_key=key, shard=shard).model_dump(mode="json"),
            task_id=task_id,
            queue=queue_of(plan.request),
            priority=PRIORITY_BULK_SHARD,
            headers={ENQUEUED_AT_HEADER: time()},
            add_to_parent=False,  # or the answer would list them all as its children
        )
    return [task_id for _, task_id in attempts.values()]
