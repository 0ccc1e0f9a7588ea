"""Plans a run that reads documents: which documents, cut into shards by an estimate of their pages.

How many pages a document has is not known before it is opened, and opening all of them is the run's work. So the first
few are looked into, and the rest is taken to be like them; see `shard_policy`. It opens no document itself, writes
nothing and enqueues nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.bulk_plan import BulkPlan, OutputColumn
from tasks.bulk.columns import page_columns
from tasks.bulk.coordinator import described_files, earlier_run, table_files, utc_now
from tasks.bulk.failures import refusing
from tasks.bulk.inputs import open_table
from tasks.bulk.layout import normalised
from tasks.bulk.listing import covered, list_documents, listing_of, listing_table
from tasks.bulk.planning import ShardPolicy, cut, cut_sizes, fingerprint
from worker.storage.labelling import PartSchema, Span, check_names
from worker.storage.unify import column_types, only_columns, schema_to_bytes, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from schemas.bulk_ocr import BulkOcr
    from schemas.bulk_plan import BatchLimits, InputFile, PlannedModel, Shard
    from tasks.bulk.inputs import Described
    from tasks.bulk.listing import Listing
    from tasks.bulk.stores import Stores

MARGIN: Final = 2.0  # a document may be this many times the work of the measured ones, and its shard still a minute's


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one worker reads, by the first documents of a run.

    Attributes:
        documents_per_s: that it reads whole, all their pages.
        document_bytes: of one of them, in the mean; None if none of them could be opened.
    """

    documents_per_s: float
    document_bytes: float | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that is written nowhere yet.

    Attributes:
        plan: the plan.
        listing: the list of documents that it cuts; None if it reads tables, or nothing.
    """

    plan: BulkPlan
    listing: Listing | None


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a run reads, as a plan pins it."""

    files: list[InputFile]
    carried: list[InputFile]
    ids: PartSchema
    shards: list[Shard]
    listing: Listing | None = None


def plan_scans(  # noqa: PLR0913 - what a plan pins, one each
    stores: Stores,
    request: BulkOcr,
    *,
    job_id: str,
    model: PlannedModel,
    limits: BatchLimits,
    measure: Callable[[Span], Speed],
    now: Callable[[], datetime] = utc_now,
) -> Planned:
    """Return the plan of a run; its request has the output as every worker means it.

    Blocks for a listing, of tables for what `plan_run` blocks for, and for `measure`.

    Args:
        stores: where inputs, output and an earlier manifest are.
        request: as it was sent.
        job_id: names the run.
        model: that the documents are read with.
        limits: how lines are batched.
        measure: returns the speed of one worker, given the rows of the first input that has some.
        now: the clock.

    Raises:
        MessageError: the request cannot be done as it is, or a store refuses or fails.
    """
    with refusing():
        stores.of(request.output)
        request = request.model_copy(update={"output": normalised(request.output)})
        plan = _tables if request.reads_tables else _objects
        inputs = plan(stores, request, measure)
    form = inputs.ids
    made = BulkPlan(
        job_id=job_id,
        fingerprint=fingerprint(inputs.files, model, request),
        planned_at=now(),
        request=request,
        model=model,
        limits=limits,
        inputs=inputs.files,
        carried=inputs.carried,
        columns=[OutputColumn(name=name, type=kind) for name, kind in column_types(form.schema)],
        arrow_schema=schema_to_bytes(form.schema),
        shards=inputs.shards,
    )
    return Planned(made, inputs.listing)


def shard_policy(speed: Speed, request: BulkOcr) -> ShardPolicy:
    """Return how many documents a shard may have: a minute's work even if they take `MARGIN` times as long as expected.

    A document is never split: one that takes longer is a shard of its own.
    """
    return ShardPolicy(speed.documents_per_s / MARGIN, min_rows=1).capped(request.shard_rows)


def _tables(stores: Stores, request: BulkOcr, measure: Callable[[Span], Speed]) -> _Inputs:
    files, carried = table_files(stores, request)
    source = [column for column in (request.uri, request.content) if column is not None]
    described = described_files(stores, request, files, source)
    form = _form(request, described)
    files = [one.file for one in described]
    first = next((file for file in files if file.rows), None)
    policy = ShardPolicy(rows_per_s=1.0)  # of no rows, any speed cuts alike
    if first is not None:
        with open_table(stores.of(first.uri), first) as table:
            policy = shard_policy(measure(Span(table, 0, table.rows)), request)
    return _Inputs(files, carried, form, cut(files, [one.row_groups for one in described], policy))


def _objects(stores: Stores, request: BulkOcr, measure: Callable[[Span], Speed]) -> _Inputs:
    found = list_documents(stores, request.inputs, request.output)
    earlier = earlier_run(stores, request)
    if earlier is not None:
        known = covered(stores, earlier)
        found = [info for info in found if (info.uri, info.etag) not in known]
    carried = [] if earlier is None else [*earlier.inputs, *earlier.carried]
    form, listing = _form(request, ()), listing_of(found, request.output)
    if listing is None:
        return _Inputs([], carried, form, [])
    table = listing_table(listing)
    speed = measure(Span(table, 0, table.rows))
    rows = shard_policy(speed, request).shard_rows
    most_bytes = math.inf if speed.document_bytes is None else rows * speed.document_bytes
    return _Inputs([listing.file], carried, form, cut_sizes(listing.sizes, rows, most_bytes), listing)


def _form(request: BulkOcr, described: Sequence[Described]) -> PartSchema:
    """Return the columns of every part. Raises ColumnError where the ids have no common form, or another's name."""
    names = [] if request.id is None else [request.id]
    ids = [(one.file.uri, only_columns(one.schema, names)) for one in described]
    columns = page_columns(request)
    check_names(ids, columns, request.column_prefix)
    return PartSchema(unify_schemas(ids), columns, request.column_prefix, {})
