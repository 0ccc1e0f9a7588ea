"""The tasks of bulk runs: `bulk.classify` and `bulk.ocr` plan one and enqueue its shards, `bulk.shard` makes one part.

Neither waits for the other. The shards leave in the same commit as the plan's answer, and the end of every shard, good
or bad, looks whether the run is done. What may succeed later is tried again some times, the rest fails by its code. A
file that cannot be read is read again a few times before it is called damaged: a bit may have flipped on the way.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from celery.exceptions import Ignore, Reject

from schemas.bulk import BulkAnswer, parse_bulk_classify, parse_bulk_shard
from schemas.bulk_ocr import parse_bulk_ocr
from schemas.bulk_plan import BatchLimits
from schemas.errors import MessageError
from schemas.names import QUEUE_BULK, QUEUE_BULK_OCR, TASK_BULK_CLASSIFY, TASK_BULK_OCR, TASK_BULK_SHARD
from tasks.bulk.afterwards import finalise_runs_of_dead_shards
from tasks.bulk.coordinator import load_plan, plan_run, publish_plan
from tasks.bulk.done import note_done
from tasks.bulk.failures import is_doubtful, is_transient, refusal
from tasks.bulk.finaliser import finalise
from tasks.bulk.scans import plan_scans
from tasks.bulk.sending import enqueue
from tasks.bulk.shard import ShardRunner
from tasks.bulk.stores import Stores
from tasks.bulk.work import Labelling, lane_of, planned_model, reader_of, reading_pipeline
from tasks.classify.pipeline import check_options
from worker.errors import BatchmillError, Cancelled, Draining, NotBatched
from worker.isolation import message_failure
from worker.metrics import PIXELS, TOKENS
from worker.slots import occupied
from worker.storage.labelling import Span
from worker.task import PrivateTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.finaliser import Verdict
    from tasks.bulk.labelling import Labeller
    from worker.lifecycle import BatchApp
    from worker.slots import Slot
    from worker.storage.tables import Table

log = structlog.get_logger(__name__)

WINDOW_ROWS: Final = 1024  # planned together: a wider window pads less, and nobody waits for one row of a shard
RETRIES: Final = 8
DOUBTS: Final = 3  # retries while the data look damaged
FIRST_RETRY_S: Final = 2.0
LAST_RETRY_S: Final = 60.0


class BulkTask(PrivateTask):
    """What they have in common: the stores, and what a failure means.

    Args:
        stores: of inputs and outputs.
    """

    abstract = True
    acks_late = True
    throws = (MessageError,)
    max_retries = RETRIES

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Turn what ends the block into what Celery does with the message.

        Raises:
            Reject: the worker is stopping; the message goes back to the front of the queue.
            Ignore: the message was called off, and is recorded as revoked.
            Retry: it may succeed later.
            MessageError: it will not; what nobody foresaw is named by its type, for its text may quote a row.
        """
        try:
            yield
        except Draining as exc:
            raise Reject(exc, requeue=True) from exc
        except Cancelled as exc:
            self.backend.mark_as_revoked(self.request.id, "cancelled", request=self.request)
            raise Ignore from exc
        except (BatchmillError, MessageError, OSError) as exc:
            failed = refusal(exc)
            if not is_transient(exc) and not (is_doubtful(exc) and self.request.retries < DOUBTS):
                raise failed from exc
            wait_s = min(FIRST_RETRY_S * 2**self.request.retries, LAST_RETRY_S)
            log.warning("bulk.retrying", task=self.name, error=type(exc).__name__, wait_s=wait_s)
            raise self.retry(countdown=wait_s, exc=failed) from exc
        except Exception as exc:
            log.exception("bulk.broken", task=self.name)
            raise message_failure(exc) from None

    def finalise(self, plan: BulkPlan) -> Verdict:
        """Finalise the run if every part is there; see `tasks.bulk.finaliser`."""
        verdict = finalise(self.stores.of(plan.request.output), plan)
        note_done(self.backend.client, plan.request, verdict)
        return verdict

    def slot(self) -> Slot:
        """Return this message's share of the engine.

        Raises:
            NotBatched: called outside the batch pool (eager mode, another pool).
        """
        slot = occupied()
        if slot is None:
            raise NotBatched(f"{self.name} runs only in worker.pool:BatchPool; start it with `batchmill worker`")
        return slot


class BulkRunTask(BulkTask):
    """Plans a run and enqueues its shards."""

    abstract = True

    def run(self, *args: object, **kwargs: object) -> dict[str, object]:
        """Return what `schemas.bulk.BulkAnswer` describes.

        Raises:
            MessageError: the run cannot be done as it is asked for; its code says why.
        """
        with self.ending():
            plan = self.planned(args, kwargs)
            verdict = self.finalise(plan)
            enqueue(self.app, plan, verdict.missing)
            output = plan.request.output
            answer = BulkAnswer(job_id=plan.job_id, shards=len(plan.shards), rows=plan.rows, output=output)
            return answer.model_dump(mode="json")

    def planned(self, args: Sequence[object], kwargs: Mapping[str, object]) -> BulkPlan:
        """Return the plan that stands for a request; raises as `run`."""
        raise NotImplementedError


class BulkClassifyTask(BulkRunTask):
    """Plans a run that labels rows."""

    name = TASK_BULK_CLASSIFY

    def planned(self, args: Sequence[object], kwargs: Mapping[str, object]) -> BulkPlan:
        """See `BulkRunTask`."""
        request = parse_bulk_classify(args, kwargs)
        slot, workload = self.slot(), self.app.workload
        model = lane_of(workload, request.model)
        check_options(request, model)
        limits = batch_limits(slot, model.name)
        labeller = Labelling.of(workload, slot, request, limits).labeller
        plan = plan_run(
            self.stores,
            request,
            job_id=self.request.id,
            model=planned_model(model.info),
            limits=limits,
            is_multi_label=model.multi_label,
            measure=partial(_measured, labeller),
        )
        return publish_plan(self.stores.of(plan.request.output), plan)


class BulkOcrTask(BulkRunTask):
    """Plans a run that reads documents."""

    name = TASK_BULK_OCR

    def planned(self, args: Sequence[object], kwargs: Mapping[str, object]) -> BulkPlan:
        """See `BulkRunTask`."""
        request = parse_bulk_ocr(args, kwargs)
        slot, workload = self.slot(), self.app.workload
        made = plan_scans(
            self.stores,
            request,
            job_id=self.request.id,
            model=planned_model(reading_pipeline(workload, request.model).info),
            measure=reader_of(workload, slot, request).speed,
        )
        return publish_plan(self.stores.of(made.plan.request.output), made.plan, made.listing)


class BulkShardTask(BulkTask):
    """Makes the part of one shard."""

    name = TASK_BULK_SHARD

    def run(self, *args: object, **kwargs: object) -> dict[str, object]:
        """Return which shard it was; its part is in the output.

        Raises:
            MessageError: the part, or the whole run, cannot be made; its code says why.
        """
        with self.ending():
            request = parse_bulk_shard(args, kwargs)
            plan = load_plan(self.stores.of(request.plan), request.plan, request.plan_key)
            try:
                ShardRunner(self.stores, self.app.workload, self.slot(), plan, request.shard).run()
            finally:
                self.finalise(plan)
            return {"shard": request.shard}


def register(app: BatchApp) -> None:
    """Let an application serve the bulk runs of its queues."""
    stores = Stores()
    if QUEUE_BULK in app.settings.queues:
        app.register_task(BulkClassifyTask(stores))
        app.tallies.add((TOKENS, (TASK_BULK_SHARD,), 0))  # a rate needs a first value
    if QUEUE_BULK_OCR in app.settings.queues:
        app.register_task(BulkOcrTask(stores))
        app.tallies.add((PIXELS, (TASK_BULK_SHARD,), 0))
    app.register_task(BulkShardTask(stores))
    app.on_dead_letters = lambda: finalise_runs_of_dead_shards(app.backend.client, stores)


def batch_limits(slot: Slot, lane: str) -> BatchLimits:
    """Return how this worker would plan the batches of a model's lane, for every worker of the run to plan them so."""
    policy = slot.engine.lanes[lane].policy
    return BatchLimits(
        max_batch_size=policy.max_batch_size,
        max_batch_tokens=policy.max_batch_tokens,
        call_cost_tokens=policy.call_cost_tokens,
        planning_window=max(policy.planning_window, WINDOW_ROWS),
    )


def _measured(labeller: Labeller, table: Table) -> float:
    return labeller.rows_per_s(Span(table, 0, table.rows))
