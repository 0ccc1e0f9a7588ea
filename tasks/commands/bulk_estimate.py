"""`batchmill bulk … --plan`: what a run would do, how long it would take, what it would cost; without a broker.

The inputs are looked into as the run itself would, and the model is measured on their first rows or documents, on this
machine. It writes nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from schemas.bulk_ocr import BulkOcr
from schemas.errors import ErrorCode, MessageError
from schemas.names import QUEUE_BULK_OCR
from tasks.bulk.coordinator import load_plan, plan_run
from tasks.bulk.estimate import Estimate, estimate
from tasks.bulk.failures import refusing
from tasks.bulk.layout import plan_uri
from tasks.bulk.parts import missing_shards
from tasks.bulk.scans import plan_scans
from tasks.bulk.stores import Stores
from tasks.bulk.task import batch_limits
from tasks.bulk.work import Labelling, lane_of, planned_model, reader_of, reading_pipeline
from tasks.classify.pipeline import check_options
from tasks.commands.bulk_view import facts
from tasks.commands.view import Grid, View
from tasks.offline import offline_slot
from worker.storage.labelling import Span

if TYPE_CHECKING:
    from schemas.bulk import BulkClassify
    from schemas.bulk_plan import BulkPlan, BulkRequest
    from tasks.bulk.scans import Speed
    from worker.settings import Settings
    from worker.storage.tables import Table

NOT_SENT: Final = "not-sent"  # in place of a job's id


@dataclass(frozen=True, slots=True)
class Forecast:
    """A run that has not begun, or is to go on.

    Attributes:
        plan: by which it would run, or the one that stands at its output.
        rows_per_s: rows of the input, or documents, that this machine does; None if there is none to measure.
        workers: like this one.
        estimate: of what is still to do; None without a speed.
        done: shards whose parts are there already.
    """

    plan: BulkPlan
    rows_per_s: float | None
    workers: int
    estimate: Estimate | None
    done: int


def forecast(settings: Settings, request: BulkRequest, workers: int, price_per_hour: float | None) -> Forecast:
    """Plan a run without beginning it. Blocks for the model's start, for the inputs as planning does, and to measure.

    Args:
        settings: of this process; the model that the request names is loaded.
        request: of the run.
        workers: like this machine.
        price_per_hour: of one of them.

    Raises:
        MessageError: the run cannot be done as it is asked for.
        ConfigError: the model is missing.
    """
    stores = Stores()
    if isinstance(request, BulkOcr):
        plan, rows_per_s = _planned_reading(settings, stores, request)
    else:
        plan, rows_per_s = _planned_labelling(settings, stores, request)
    store = stores.of(plan.request.output)
    plan = _standing(stores, plan)
    output = plan.request.output
    with refusing():
        found = [info.uri.removeprefix(f"{output}/") for info in store.list(f"{output}/")]
    missing = missing_shards(plan, found)
    rows = [plan.shards[shard].rows for shard in missing]
    made = None if rows_per_s is None else estimate(rows, rows_per_s, workers, price_per_hour)
    return Forecast(plan, rows_per_s, workers, made, len(plan.shards) - len(missing))


def view_of(seen: Forecast) -> View:
    """Return a forecast as tables: the files, the columns of the parts, and the run."""
    files = [(file.uri, file.format, str(file.rows), str(file.size_bytes)) for file in seen.plan.inputs]
    columns = [(column.name, column.type) for column in seen.plan.columns]
    return View(
        [_record(seen)],
        [
            Grid(("file", "format", "rows", "bytes"), files),
            Grid(("column", "type"), columns),
            facts(_figures(seen)),
        ],
    )


def _planned_labelling(settings: Settings, stores: Stores, request: BulkClassify) -> tuple[BulkPlan, float | None]:
    measured: list[float] = []
    with offline_slot(_with(settings, model=request.model)) as (workload, slot):
        request = request.model_copy(update={"model": None})  # the one that is loaded here, however it was named
        model = lane_of(workload, None)
        check_options(request, model)
        limits = batch_limits(slot, model.name)
        labeller = Labelling.of(workload, slot, request, limits).labeller

        def measure(table: Table) -> float:
            measured.append(labeller.rows_per_s(Span(table, 0, table.rows)))
            return measured[-1]

        plan = plan_run(
            stores,
            request,
            job_id=NOT_SENT,
            model=planned_model(model.info),
            limits=limits,
            is_multi_label=model.multi_label,
            measure=measure,
        )
    return plan, measured[0] if measured else None


def _planned_reading(settings: Settings, stores: Stores, request: BulkOcr) -> tuple[BulkPlan, float | None]:
    measured: list[Speed] = []
    with offline_slot(_with(settings, queues=(QUEUE_BULK_OCR,), ocr_model=request.model)) as (workload, slot):
        from tasks.ocr.stages import CROPS  # noqa: PLC0415 - its libraries are an extra; they are there by now

        request = request.model_copy(update={"model": None})  # as above
        reader = reader_of(workload, slot, request)

        def measure(span: Span) -> Speed:
            measured.append(reader.speed(span))
            return measured[-1]

        planned = plan_scans(
            stores,
            request,
            job_id=NOT_SENT,
            model=planned_model(reading_pipeline(workload, None).info),
            limits=batch_limits(slot, CROPS),
            measure=measure,
        )
    return planned.plan, measured[0].documents_per_s if measured else None


def _with(settings: Settings, **overrides: object) -> Settings:
    """Return the settings with what is given; None = as they are."""
    return settings.model_copy(update={name: value for name, value in overrides.items() if value is not None})


def _standing(stores: Stores, plan: BulkPlan) -> BulkPlan:
    """Return the plan of the same work that stands at the output, else this one."""
    output = plan.request.output
    store, uri = stores.of(output), plan_uri(output)
    with refusing():
        if not store.exists(uri):
            return plan
    standing = load_plan(store, uri)
    if standing.fingerprint != plan.fingerprint:
        text = f"{output}: it holds run {standing.job_id}, of other work; choose another output"
        raise MessageError(ErrorCode.OUTPUT_IN_USE, text)
    return standing


def _record(seen: Forecast) -> dict[str, Any]:  # JSON
    plan, made = seen.plan, seen.estimate
    return {
        "files": len(plan.inputs),
        "carried_files": len(plan.carried),
        "bytes": sum(file.size_bytes for file in plan.inputs),
        "rows": plan.rows,
        "columns": [column.model_dump() for column in plan.columns],
        "shards": len(plan.shards),
        "shards_done": seen.done,
        "output": plan.request.output,
        "model": plan.model.model_dump(),
        "rows_per_s": None if seen.rows_per_s is None else round(seen.rows_per_s, 1),
        "workers": seen.workers,
        "to_do": None if made is None else asdict(made),
        "inputs": [file.model_dump(include={"uri", "format", "rows", "size_bytes"}) for file in plan.inputs],
    }


def _figures(seen: Forecast) -> dict[str, object]:
    made = seen.estimate
    names = ("files", "carried_files", "rows", "bytes", "shards", "shards_done", "rows_per_s", "workers")
    figures = {name: value for name, value in _record(seen).items() if name in names}
    if made is not None:
        figures |= {"rows_to_do": made.rows, "time": timedelta(seconds=round(made.wall_s))}
        figures["cost"] = None if made.cost is None else f"{made.cost:.4g}"
    return figures
