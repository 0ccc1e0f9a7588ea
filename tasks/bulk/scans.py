"""Plans a run that reads documents: which documents, cut into shards by an estimate of their pages.

How many pages a document has is not known before it is opened, and opening all of them is the run's work. So the first
few are looked into, and the rest is taken to be like them; see `shard_policy`. It opens no document itself, writes
nothing and enqueues nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tasks.bulk.columns import page_columns
from tasks.bulk.coordinator import PinnedInputs, described_files, earlier_run, table_files, table_policy, utc_now
from tasks.bulk.failures import refusing
from tasks.bulk.layout import normalised
from tasks.bulk.listing import covered, list_documents, listing_of, listing_table
from tasks.bulk.planning import ShardPolicy, cut_sizes
from worker.storage.labelling import PartSchema, Span, check_names
from worker.storage.unify import only_columns, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from schemas.bulk_ocr import BulkOcr
    from schemas.bulk_plan import BulkPlan, PlannedModel
    from tasks.bulk.inputs import Described
    from tasks.bulk.listing import Listing
    from tasks.bulk.stores import Stores
    from worker.storage.tables import Table

MARGIN: Final = 2.0  # a document may be this many times the work of the measured ones, and its shard still a minute's


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one worker reads, by the first documents of a run.

    Attributes:
        documents_per_s: that it reads whole, all their pages.
        document_bytes: of one of them, in the mean; None if none of them could be opened.
        document_pages: likewise, of those that the run reads.
    """

    documents_per_s: float
    document_bytes: float | None
    document_pages: float | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that is written nowhere yet.

    Attributes:
        plan: the plan.
        listing: the list of documents that it cuts; None if it reads tables, or nothing.
    """

    plan: BulkPlan
    listing: Listing | None


def plan_scans(  # noqa: PLR0913 - what a plan pins, one each
    stores: Stores,
    request: BulkOcr,
    *,
    job_id: str,
    model: PlannedModel,
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
        measure: returns the speed of one worker, given the rows of the first input that has some.
        now: the clock.

    Raises:
        MessageError: the request cannot be done as it is, or a store refuses or fails.
    """
    with refusing():
        stores.of(request.output)
        request = request.model_copy(update={"output": normalised(request.output)})
        inputs, listing = (_tables if request.reads_tables else _objects)(stores, request, measure)
    return Planned(inputs.plan(request, job_id=job_id, model=model, planned_at=now()), listing)


def shard_policy(speed: Speed, request: BulkOcr) -> ShardPolicy:
    """Return how many documents a shard may have: a minute's work even if they take `MARGIN` times as long as expected.

    A document is never split: one that takes longer is a shard of its own.
    """
    return ShardPolicy(speed.documents_per_s / MARGIN, min_rows=1).capped(request.shard_rows)


def _tables(stores: Stores, request: BulkOcr, measure: Callable[[Span], Speed]) -> tuple[PinnedInputs, None]:
    files, carried = table_files(stores, request)
    source = [column for column in (request.uri, request.content) if column is not None]
    described = described_files(stores, request, files, source)
    form = _form(request, described)

    def policy(table: Table) -> ShardPolicy:
        return shard_policy(measure(Span(table, 0, table.rows)), request)

    return PinnedInputs.of_tables(described, carried, form, table_policy(stores, described, policy)), None


def _objects(stores: Stores, request: BulkOcr, measure: Callable[[Span], Speed]) -> tuple[PinnedInputs, Listing | None]:
    found = list_documents(stores, request.inputs, request.output)
    earlier = earlier_run(stores, request)
    if earlier is not None:
        known = covered(stores, earlier)
        found = [info for info in found if (info.uri, info.etag) not in known]
    carried = [] if earlier is None else [*earlier.inputs, *earlier.carried]
    form, listing = _form(request, ()), listing_of(found, request.output)
    if listing is None:
        return PinnedInputs([], carried, form, []), None
    table = listing_table(listing)
    speed = measure(Span(table, 0, table.rows))
    rows = shard_policy(speed, request).shard_rows
    most_bytes = math.inf if speed.document_bytes is None else rows * speed.document_bytes
    shards = cut_sizes(listing.sizes, rows, most_bytes)
    return PinnedInputs([listing.file], carried, form, shards), listing


def _form(request: BulkOcr, described: Sequence[Described]) -> PartSchema:
    """Return the columns of every part. Raises ColumnError where the ids have no common form, or another's name."""
    names = [] if request.id is None else [request.id]
    ids = [(one.file.uri, only_columns(one.schema, names)) for one in described]
    columns = page_columns(request)
    check_names(ids, columns, request.column_prefix)
    return PartSchema(unify_schemas(ids), columns, request.column_prefix, {})
