"""`batchmill bulk … --plan`: what a run would do, how long it would take, what it would cost; without a broker.

The inputs are looked into as the run itself would, and the model is measured on their first rows or documents, on this
machine. It writes nothing.
"""

from __future__ import annotations

import math
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
from tasks.bulk.listing import lists_documents
from tasks.bulk.parts import missing_shards
from tasks.bulk.scans import plan_scans
from tasks.bulk.task import batch_limits
from tasks.bulk.work import Labelling, lane_of, planned_model, reader_of, reading_pipeline
from tasks.classify.pipeline import check_options
from tasks.commands.bulk_target import stores_of_command
from tasks.commands.bulk_view import counted, facts
from tasks.commands.view import Grid, View
from tasks.offline import offline_slot
from worker.storage.labelling import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.bulk import BulkClassify
    from schemas.bulk_plan import BulkPlan, BulkRequest
    from tasks.bulk.scans import Planned, Speed
    from tasks.bulk.stores import Stores
    from worker.settings import Settings
    from worker.storage.tables import Table

CENT: Final = 0.01
NOT_SENT: Final = "not-sent"  # in place of a job's id


@dataclass(frozen=True, slots=True)
class Scans:
    """What a run that reads documents knows of them.

    Attributes:
        size_bytes: of all of them; 0 where tables name or hold them.
        pages: of all of them, if they are like the first few; None if none of these can be opened.
    """

    size_bytes: int
    pages: int | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """A run that has not begun, or is to go on.

    Attributes:
        plan: by which it would run, or the one that stands at its output.
        rows_per_s: rows of the input, or documents, that this machine does; None if there is none to measure.
        workers: like this one.
        estimate: of what is still to do; None without a speed.
        done: shards whose parts are there already.
        scans: of a run that reads documents.
    """

    plan: BulkPlan
    rows_per_s: float | None
    workers: int
    estimate: Estimate | None
    done: int
    scans: Scans | None = None


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
    stores = stores_of_command()
    scans = None
    if isinstance(request, BulkOcr):
        plan, rows_per_s, scans = _planned_reading(settings, stores, request)
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
    return Forecast(plan, rows_per_s, workers, made, len(plan.shards) - len(missing), scans)


def view_of(seen: Forecast) -> View:
    """Return a forecast as tables: the files unless they are documents, the columns of the parts, and the run."""
    plan = seen.plan
    files = [(file.uri, file.format, str(file.rows), str(file.size_bytes)) for file in plan.inputs]
    columns = [(column.name, column.type) for column in plan.columns]
    grids = [
        Grid(("file", "format", counted(plan.request), "bytes"), files),
        Grid(("column", "type"), columns),
        facts(_figures(seen), plan.request),
    ]
    return View([_record(seen)], grids[1:] if lists_documents(plan.request) else grids)


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


def _planned_reading(settings: Settings, stores: Stores, request: BulkOcr) -> tuple[BulkPlan, float | None, Scans]:
    measured: list[Speed] = []
    with offline_slot(_with(settings, queues=(QUEUE_BULK_OCR,), ocr_model=request.model)) as (workload, slot):
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
            measure=measure,
        )
    return planned.plan, measured[0].documents_per_s if measured else None, _scans(planned, measured)


def _scans(planned: Planned, measured: Sequence[Speed]) -> Scans:
    pages = measured[0].document_pages if measured else None
    return Scans(
        size_bytes=0 if planned.listing is None else sum(planned.listing.sizes),
        pages=None if pages is None else round(planned.plan.rows * pages),
    )


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
        **_inputs(plan, seen.scans),
        "rows": plan.rows,
        **({} if seen.scans is None else {"pages": seen.scans.pages}),
        "columns": [column.model_dump() for column in plan.columns],
        "shards": len(plan.shards),
        "shards_done": seen.done,
        "output": plan.request.output,
        "model": plan.model.model_dump(),
        "rows_per_s": None if seen.rows_per_s is None else float(f"{seen.rows_per_s:.4g}"),
        "workers": seen.workers,
        "to_do": None if made is None else asdict(made),
    }


def _inputs(plan: BulkPlan, scans: Scans | None) -> dict[str, Any]:  # JSON
    """Return what the inputs are; where they are the documents, these instead of the list that the run would make."""
    if lists_documents(plan.request):
        return {
            "files": plan.rows,
            "carried_files": sum(file.rows for file in plan.carried),
            "bytes": 0 if scans is None else scans.size_bytes,
            "inputs": [],
        }
    return {
        "files": len(plan.inputs),
        "carried_files": len(plan.carried),
        "bytes": sum(file.size_bytes for file in plan.inputs),
        "inputs": [file.model_dump(include={"uri", "format", "rows", "size_bytes"}) for file in plan.inputs],
    }


def _price(cost: float) -> str:
    return f"{cost:,.2f}" if cost >= CENT else f"below {CENT}"


def _figures(seen: Forecast) -> dict[str, object]:
    made, record = seen.estimate, _record(seen)
    figures: dict[str, object] = {} if lists_documents(seen.plan.request) else {"files": record["files"]}
    figures |= {name: record[name] for name in ("carried_files", "rows")}
    if seen.scans is not None:
        figures["pages"] = None if seen.scans.pages is None else f"about {seen.scans.pages}"
    figures |= {name: record[name] for name in ("bytes", "shards", "shards_done", "rows_per_s", "workers")}
    if made is not None:
        figures |= {"rows_to_do": made.rows, "time": timedelta(seconds=math.ceil(made.wall_s))}
        figures["cost"] = None if made.cost is None else _price(made.cost)
    return figures
