"""What a shard's work is: the two kinds of run, each from a span of rows to a file of results.

Everything else of a run is the same for both: planning aside, a shard, a part, a manifest does not know which it is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import PlannedModel
from schemas.errors import ErrorCode, MessageError
from schemas.names import QUEUE_BULK, QUEUE_BULK_OCR, TASK_CLASSIFY, TASK_OCR_DOCUMENTS
from tasks.bulk.columns import write_rejects
from tasks.bulk.labelling import Labeller
from worker.metrics import PIXELS, TOKENS
from worker.storage.growing import write_grown
from worker.storage.labelling import write_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.bulk import BulkClassify
    from schemas.bulk_manifest import PageTally, Tally
    from schemas.bulk_plan import BatchLimits, BulkPlan
    from tasks.bulk.labelling import Labelled
    from tasks.bulk.reading import DocumentReader, ReadPages
    from tasks.classify.model import TicketClassifier
    from tasks.classify.pipeline import ClassifyPipeline
    from tasks.ocr.pipeline import OcrPipeline
    from worker.jobs import Pipeline
    from worker.lifecycle import Workload
    from worker.metrics import Metric
    from worker.slots import Slot
    from worker.storage.labelling import PartSchema, Span
    from worker.storage.parts import Part


class Made(Protocol):
    """What the rows of a span came to; its files block on the disk and on the span's table."""

    def tally(self) -> Tally | PageTally:
        """Return the counts over the rows."""
        ...

    def read(self) -> tuple[Metric, int]:
        """Return how much input the model has read, and the metric that counts it."""
        ...

    def write_part(self, path: Path, form: PartSchema) -> Part:
        """Write the rows; `form` is `part_schema`. Raises as `worker.storage.labelling.write_part`."""
        ...

    def write_rejects(self, path: Path, form: PartSchema) -> Part:
        """Write which rows have an error, and which; `form` is `rejects_schema`. Raises likewise."""
        ...


class Work(Protocol):
    """One kind of work, as a worker does it for one message."""

    @property
    def info(self) -> Mapping[str, str]:
        """What does it, as `schemas.results.ModelInfo` describes it."""
        ...

    @property
    def pipeline(self) -> Pipeline:
        """Knows the items."""
        ...

    def make(self, span: Span) -> Made:
        """Do it. Blocks; raises as `Labeller.label` and `DocumentReader.read`."""
        ...


def work_of(workload: Workload, slot: Slot, plan: BulkPlan) -> Work:
    """Return the work of a plan's shards.

    Raises:
        MessageError: the worker has no such model.
    """
    request = plan.request
    if isinstance(request, BulkOcr):
        return Reading(reader_of(workload, slot, request), reading_pipeline(workload, request.model))
    assert plan.limits is not None  # noqa: S101 - a plan that labels rows has them
    return Labelling.of(workload, slot, request, plan.limits)


@dataclass(frozen=True, slots=True)
class Labelling:
    """Rows get labels."""

    labeller: Labeller
    model: TicketClassifier
    pipeline: ClassifyPipeline

    @classmethod
    def of(cls, workload: Workload, slot: Slot, request: BulkClassify, limits: BatchLimits) -> Labelling:
        """Return the work of a request; raises as `lane_of`."""
        model = lane_of(workload, request.model)
        pipeline: ClassifyPipeline = workload.pipelines[TASK_CLASSIFY]  # type: ignore[assignment] # its own task's
        return cls(Labeller(slot, pipeline, model, request, limits), model, pipeline)

    @property
    def info(self) -> Mapping[str, str]:
        """See `Work`."""
        return self.model.info

    def make(self, span: Span) -> Made:
        """See `Work`."""
        return _Labels(span, self.labeller.label(span))


@dataclass(frozen=True, slots=True)
class _Labels:
    span: Span
    labelled: Labelled

    def tally(self) -> Tally:
        return self.labelled.tally()

    def read(self) -> tuple[Metric, int]:
        return TOKENS, self.labelled.model_tokens

    def write_part(self, path: Path, form: PartSchema) -> Part:
        results = self.labelled.results()
        return write_part(path, self.span, {column.name: results[column.name] for column in form.results}, form)

    def write_rejects(self, path: Path, form: PartSchema) -> Part:
        return write_rejects(path, self.span, self.labelled.errors, form)


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents become pages."""

    reader: DocumentReader
    pipeline: OcrPipeline

    @property
    def info(self) -> Mapping[str, str]:
        """See `Work`."""
        return self.pipeline.info

    def make(self, span: Span) -> Made:
        """See `Work`."""
        return _Pages(span, self.reader.read(span))


@dataclass(frozen=True, slots=True)
class _Pages:
    span: Span
    pages: ReadPages

    def tally(self) -> PageTally:
        return self.pages.tally()

    def read(self) -> tuple[Metric, int]:
        return PIXELS, self.pages.pixels

    def write_part(self, path: Path, form: PartSchema) -> Part:
        return write_grown(path, self.span, self.pages.rows, form)

    def write_rejects(self, path: Path, form: PartSchema) -> Part:
        return write_grown(path, self.span, self.pages.rows, form, where="error_code")


def lane_of(workload: Workload, name: str | None) -> TicketClassifier:
    """Return the model that a request asks for; None = the worker's own.

    Raises:
        MessageError: the worker has no such model.
    """
    if not workload.models:
        raise MessageError(ErrorCode.UNKNOWN_MODEL, f"this worker has no classifier; send it to the queue {QUEUE_BULK}")
    lane = next(iter(workload.models)) if name is None else name
    if lane not in workload.models:
        known = ", ".join(sorted(workload.models))
        raise MessageError(ErrorCode.UNKNOWN_MODEL, f"model: this worker has {known}; name one of them")
    model: TicketClassifier = workload.models[lane]  # type: ignore[assignment] # every lane here is one
    return model


def reading_pipeline(workload: Workload, name: str | None) -> OcrPipeline:
    """Return the pipeline of the OCR model that a request asks for; None = the worker's own.

    Raises:
        MessageError: the worker has no such model, or none at all.
    """
    pipeline: OcrPipeline | None = workload.pipelines.get(TASK_OCR_DOCUMENTS)  # type: ignore[assignment] # its own task's
    if pipeline is None:
        raise MessageError(
            ErrorCode.UNKNOWN_MODEL, f"this worker reads no documents; send it to the queue {QUEUE_BULK_OCR}"
        )
    pipeline.check_model(name)
    return pipeline


def reader_of(workload: Workload, slot: Slot, request: BulkOcr) -> DocumentReader:
    """Return what reads the documents of a request; raises as `reading_pipeline`."""
    pipeline = reading_pipeline(workload, request.model)
    from tasks.bulk.reading import DocumentReader  # noqa: PLC0415 - its libraries are an extra

    return DocumentReader(slot, pipeline, request)


def planned_model(info: Mapping[str, str]) -> PlannedModel:
    """Return what a plan pins of a model, given what a result says of it."""
    return PlannedModel(**{name: info[name] for name in PlannedModel.model_fields})


def check_model(plan: BulkPlan, info: Mapping[str, str]) -> None:
    """Refuse to make a part of a run with another model than its other parts.

    Raises:
        MessageError: the worker has another one.
    """
    ours, wanted = planned_model(info), plan.model
    if ours != wanted:
        text = (
            f"the run was planned for {_spelt(wanted)}, this worker has {_spelt(ours)}: resume the run with the "
            "former, or run anew into another output"
        )
        raise MessageError(ErrorCode.UNKNOWN_MODEL, text)


def _spelt(model: PlannedModel) -> str:
    return f"{model.name} {model.version} ({model.sha256[:8]})"
