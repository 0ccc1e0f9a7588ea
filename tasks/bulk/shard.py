"""One shard from its message to its part: read, work, write, verify, create once, and see whether the run is done.

Whoever runs a shard again finds its part and skips it. Of two that make it at the same time the first part stands; if
the other one came out different, a marker says so, which the manifest counts. It knows neither Celery nor queues, nor
what the work is (`tasks.bulk.work`).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import structlog

from schemas.bulk_manifest import PartRecord
from schemas.errors import ErrorCode, MessageError
from schemas.names import TASK_BULK_SHARD
from schemas.results import ModelInfo
from tasks.bulk.columns import part_metadata, part_schema, rejects_schema
from tasks.bulk.inputs import open_table
from tasks.bulk.layout import differs_uri, part_uri, rejects_uri
from tasks.bulk.listing import lists_documents, open_listing
from tasks.bulk.parts import part_names
from tasks.bulk.planning import plan_key
from tasks.bulk.work import check_model, work_of
from worker.metrics import BULK_ROWS
from worker.scratch import scratch
from worker.storage.labelling import Span

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_manifest import PageTally, Tally
    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.stores import Stores
    from tasks.bulk.work import Made
    from worker.lifecycle import Workload
    from worker.slots import Slot

log = structlog.get_logger(__name__)

PART_FILE: Final = "part.parquet"
REJECTS_FILE: Final = "rejects.parquet"


class ShardRunner:
    """Makes the part of one shard.

    Args:
        stores: where the inputs and the output are.
        workload: what this worker serves.
        slot: the message's share of the engine.
        plan: the run's.
        shard: the index in its list of shards.

    Raises:
        MessageError: the plan has no such shard, or the worker has no such model.
    """

    def __init__(self, stores: Stores, workload: Workload, slot: Slot, plan: BulkPlan, shard: int) -> None:
        self._stores = stores
        self._slot = slot
        self._plan = plan
        self._shard = shard
        self._work = work_of(workload, slot, plan)
        names = part_names(plan)
        if shard >= len(names):
            text = f"the plan of run {plan.job_id} has no shard {shard}; plan the run again"
            raise MessageError(ErrorCode.PLAN_MISSING, text)
        self._name = names[shard]
        self._uri = part_uri(plan.request.output, self._name)

    def run(self) -> None:
        """Make the part unless it is there. Blocks for as long as its rows take.

        Raises:
            MessageError: the plan's model is not this worker's.
            TableError, StorageError, BrokenPart, OSError: rows cannot be read, or the part not be written.
            Draining: the worker is stopping.
            Cancelled: the message was called off.
        """
        if self._stores.of(self._uri).exists(self._uri):
            log.info("shard.found", shard=self._shard, part=self._uri)
            return
        check_model(self._plan, self._work.info)
        with ExitStack() as stack:
            directory = stack.enter_context(scratch())
            file = self._plan.inputs[self._plan.shards[self._shard].file]
            opened = open_listing if lists_documents(self._plan.request) else open_table
            table = stack.enter_context(opened(self._stores.of(file.uri), file))
            shard = self._plan.shards[self._shard]
            self._make(directory, Span(table, shard.start, shard.stop))

    def _make(self, directory: Path, span: Span) -> None:
        made = self._work.make(span)
        tally = made.tally()
        record = PartRecord(
            plan_key=plan_key(self._plan),
            shard=self._shard,
            model=ModelInfo.model_validate(self._work.info),
            tally=tally,
            # Before the part: once that is there, nobody comes back.
            rejects_sha256=self._create_rejects(directory / REJECTS_FILE, made) if tally.rejected else None,
        )
        self._create_part(directory / PART_FILE, made, record)

    def _create_rejects(self, path: Path, made: Made) -> str:
        with self._slot.working(self._slot.job(self._work.pipeline)):
            rejects = made.write_rejects(path, rejects_schema(self._plan))
        uri = rejects_uri(self._plan.request.output, self._name, rejects.sha256)
        self._stores.of(uri).create(uri, path, rejects.sha256)
        return rejects.sha256

    def _create_part(self, path: Path, made: Made, record: PartRecord) -> None:
        form = part_schema(self._plan, part_metadata(record))
        with self._slot.working(self._slot.job(self._work.pipeline)):
            part = made.write_part(path, form)
        store = self._stores.of(self._uri)
        created = store.create(self._uri, path, part.sha256)
        event = "shard.created" if created.is_new else "shard.found"
        log.info(event, shard=self._shard, part=self._uri, rows=part.rows)
        if created.is_new:
            self._count(made, record.tally)
        elif created.sha256 != part.sha256:
            store.put_bytes(differs_uri(self._plan.request.output, self._shard, part.sha256), b"", only_new=True)
            log.warning("shard.differs", shard=self._shard, part=self._uri)

    def _count(self, made: Made, tally: Tally | PageTally) -> None:
        """Count the rows of a part for the metrics, once it is there."""
        metric, units = made.read()
        self._slot.engine.tallies.add(
            (BULK_ROWS, ("ok",), tally.rows - tally.rejected),
            (BULK_ROWS, ("rejected",), tally.rejected),
            (metric, (TASK_BULK_SHARD,), units),
        )
