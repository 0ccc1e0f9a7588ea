"""One shard from its message to its part: read, label, write, verify, create once, and see whether the run is done.

Whoever runs a shard again finds its part and skips it. Of two that make it at the same time the first part stands; if
the other one came out different, a marker says so, which the manifest counts. It knows neither Celery nor queues.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import structlog

from schemas.bulk_manifest import PartRecord
from schemas.bulk_plan import PlannedModel
from schemas.errors import ErrorCode, MessageError
from schemas.names import TASK_BULK_SHARD, TASK_CLASSIFY
from schemas.results import ModelInfo
from tasks.bulk.columns import part_metadata, part_schema, rejects_schema, write_rejects
from tasks.bulk.inputs import open_table
from tasks.bulk.labelling import Labeller
from tasks.bulk.layout import differs_uri, part_uri, rejects_uri
from tasks.bulk.parts import part_names
from tasks.bulk.planning import plan_key
from worker.metrics import BULK_ROWS, TOKENS
from worker.scratch import scratch
from worker.storage.labelling import Span, write_part

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_manifest import Tally
    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.labelling import Labelled
    from tasks.bulk.stores import Stores
    from tasks.classify.model import TicketClassifier
    from tasks.classify.pipeline import ClassifyPipeline
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
        MessageError: the plan has no such shard.
    """

    def __init__(self, stores: Stores, workload: Workload, slot: Slot, plan: BulkPlan, shard: int) -> None:
        self._stores = stores
        self._slot = slot
        self._plan = plan
        self._shard = shard
        self._model = lane_of(workload, plan.request.model)
        self._pipeline: ClassifyPipeline = workload.pipelines[TASK_CLASSIFY]  # type: ignore[assignment] # its own task's
        names = part_names(plan)
        if shard >= len(names):
            text = f"the plan of run {plan.job_id} has no shard {shard}; send the bulk.classify again"
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
        check_model(self._plan, self._model)
        with ExitStack() as stack:
            directory = stack.enter_context(scratch())
            file = self._plan.inputs[self._plan.shards[self._shard].file]
            table = stack.enter_context(open_table(self._stores.of(file.uri), file))
            shard = self._plan.shards[self._shard]
            self._make(directory, Span(table, shard.start, shard.stop))

    def _make(self, directory: Path, span: Span) -> None:
        labeller = Labeller(self._slot, self._pipeline, self._model, self._plan.request, self._plan.limits)
        labelled = labeller.label(span)
        tally = labelled.tally()
        record = PartRecord(
            plan_key=plan_key(self._plan),
            shard=self._shard,
            model=ModelInfo.model_validate(self._model.info),
            tally=tally,
            # Before the part: once that is there, nobody comes back.
            rejects_sha256=self._create_rejects(directory / REJECTS_FILE, span, labelled) if tally.rejected else None,
        )
        self._create_part(directory / PART_FILE, span, labelled, record)

    def _create_rejects(self, path: Path, span: Span, labelled: Labelled) -> str:
        with self._slot.working(self._slot.job(self._pipeline)):
            rejects = write_rejects(path, span, labelled.errors, rejects_schema(self._plan))
        uri = rejects_uri(self._plan.request.output, self._name, rejects.sha256)
        self._stores.of(uri).create(uri, path, rejects.sha256)
        return rejects.sha256

    def _create_part(self, path: Path, span: Span, labelled: Labelled, record: PartRecord) -> None:
        form = part_schema(self._plan, part_metadata(record))
        results = {column.name: labelled.results()[column.name] for column in form.results}
        with self._slot.working(self._slot.job(self._pipeline)):
            part = write_part(path, span, results, form)
        store = self._stores.of(self._uri)
        created = store.create(self._uri, path, part.sha256)
        event = "shard.created" if created.is_new else "shard.found"
        log.info(event, shard=self._shard, part=self._uri, rows=part.rows)
        if created.is_new:
            self._count(labelled, record.tally)
        elif created.sha256 != part.sha256:
            store.put_bytes(differs_uri(self._plan.request.output, self._shard, part.sha256), b"", only_new=True)
            log.warning("shard.differs", shard=self._shard, part=self._uri)

    def _count(self, labelled: Labelled, tally: Tally) -> None:
        """Count the rows of a part for the metrics, once it is there."""
        self._slot.engine.tallies.add(
            (BULK_ROWS, ("ok",), tally.rows - tally.rejected),
            (BULK_ROWS, ("rejected",), tally.rejected),
            (TOKENS, (TASK_BULK_SHARD,), labelled.model_tokens),
        )


def lane_of(workload: Workload, name: str | None) -> TicketClassifier:
    """Return the model that a request asks for; None = the worker's own.

    Raises:
        MessageError: the worker has no such model.
    """
    lane = next(iter(workload.models)) if name is None else name
    if lane not in workload.models:
        known = ", ".join(sorted(workload.models))
        raise MessageError(ErrorCode.UNKNOWN_MODEL, f"model: this worker has {known}; name one of them")
    model: TicketClassifier = workload.models[lane]  # type: ignore[assignment] # every lane here is one
    return model


def planned_model(model: TicketClassifier) -> PlannedModel:
    """Return what a plan pins of a model."""
    return PlannedModel(**{name: model.info[name] for name in PlannedModel.model_fields})


def check_model(plan: BulkPlan, model: TicketClassifier) -> None:
    """Refuse to label a part of a run with another model than its other parts.

    Raises:
        MessageError: the worker has another one.
    """
    ours, wanted = planned_model(model), plan.model
    if ours != wanted:
        text = (
            f"the run was planned for {_spelt(wanted)}, this worker has {_spelt(ours)}: resume the run with the "
            "former, or run anew into another output"
        )
        raise MessageError(ErrorCode.UNKNOWN_MODEL, text)


def _spelt(model: PlannedModel) -> str:
    return f"{model.name} {model.version} ({model.sha256[:8]})"
