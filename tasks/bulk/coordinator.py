"""Plans a run, and publishes the plan: however many plan the same work at once, one plan stands and all go by it.

Planning looks at every file that is to be labelled, so that a wrong column or a damaged file is told before the first
row costs anything. It writes nothing; publishing writes one document, with a conditional create. It enqueues no shard
and knows no model: how fast one is, is measured by the caller.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from schemas.bulk_manifest import BulkManifest
from schemas.bulk_plan import BulkPlan, OutputColumn
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.columns import REJECT_COLUMNS, result_columns, text_columns
from tasks.bulk.failures import refusing
from tasks.bulk.inputs import THREADS, describe, list_inputs, open_table, pinned
from tasks.bulk.layout import manifest_uri, normalised, plan_uri
from tasks.bulk.planning import ShardPolicy, arrange, cut, fingerprint, plan_key, split_covered
from worker.storage.errors import NotFound
from worker.storage.labelling import PartSchema, check_names
from worker.storage.unify import column_types, only_columns, schema_to_bytes, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.bulk import BulkClassify
    from schemas.bulk_plan import BatchLimits, BulkRequest, InputFile, PlannedModel, Shard
    from tasks.bulk.inputs import Described
    from tasks.bulk.listing import Listing
    from tasks.bulk.stores import Stores
    from worker.storage.labelling import ResultColumn
    from worker.storage.objects import ObjectStore
    from worker.storage.tables import Table


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class PinnedInputs:
    """What a run reads, as a plan pins it.

    Attributes:
        files: to read, in order.
        carried: that an earlier run covers.
        form: the columns that it gives rise to.
        shards: cut from the files.
    """

    files: list[InputFile]
    carried: list[InputFile]
    form: PartSchema
    shards: list[Shard]

    @classmethod
    def of_tables(
        cls, described: Sequence[Described], carried: list[InputFile], form: PartSchema, policy: ShardPolicy
    ) -> Self:
        """Return tables that were looked into, cut by a policy."""
        files = [one.file for one in described]
        return cls(files, carried, form, cut(files, [one.row_groups for one in described], policy))

    def plan(
        self,
        request: BulkRequest,
        *,
        job_id: str,
        model: PlannedModel,
        planned_at: datetime,
        limits: BatchLimits | None = None,
    ) -> BulkPlan:
        """Return the plan of a run over them; `limits` as in the plan."""
        return BulkPlan(
            job_id=job_id,
            fingerprint=fingerprint(self.files, model, request),
            planned_at=planned_at,
            request=request,
            model=model,
            limits=limits,
            inputs=self.files,
            carried=self.carried,
            columns=[OutputColumn(name=name, type=kind) for name, kind in column_types(self.form.schema)],
            arrow_schema=schema_to_bytes(self.form.schema),
            shards=self.shards,
        )


def plan_run(  # noqa: PLR0913 - what a plan pins, one each
    stores: Stores,
    request: BulkClassify,
    *,
    job_id: str,
    model: PlannedModel,
    limits: BatchLimits,
    is_multi_label: bool,
    measure: Callable[[Table], float],
    now: Callable[[], datetime] = utc_now,
) -> BulkPlan:
    """Return the plan of a run, which is written nowhere yet; its request has the output as every worker means it.

    Blocks for a listing, a footer of each new Parquet file, all of each new CSV or JSONL file, and `measure`.

    Args:
        stores: where inputs, output and an earlier manifest are.
        request: as it was sent.
        job_id: names the run.
        model: that it is labelled by.
        limits: how batches are planned.
        is_multi_label: whether the model gives a row any number of labels.
        measure: returns the rows/s of one worker, given the first file that has rows; not called if none has.
        now: the clock.

    Raises:
        MessageError: the request cannot be done as it is, or a store refuses or fails.
    """
    with refusing():
        stores.of(request.output)
        request = request.model_copy(update={"output": normalised(request.output)})
        files, carried = table_files(stores, request)
        described = described_files(stores, request, files, text_columns(request))
        form = _form(request, described, result_columns(request, is_multi_label=is_multi_label))

        def policy(table: Table) -> ShardPolicy:
            return ShardPolicy(measure(table)).capped(request.shard_rows)

        pinned_inputs = PinnedInputs.of_tables(described, carried, form, table_policy(stores, described, policy))
    return pinned_inputs.plan(request, job_id=job_id, model=model, limits=limits, planned_at=now())


def publish_plan(store: ObjectStore, plan: BulkPlan, listing: Listing | None = None) -> BulkPlan:
    """Make a plan the one of its output, and return the one that stands: this, or another's of the same work.

    Blocks on the store, which has to prove first that its conditional creates hold.

    Args:
        store: where the output is.
        plan: as `plan_run` made it.
        listing: the list of documents that it cuts, to be there before it.

    Raises:
        MessageError: `output_in_use`, a run of other work is there; `unsupported_store`, the store overwrites; or it
            refuses or fails.
    """
    output = plan.request.output
    uri = plan_uri(output)
    with refusing():
        is_finished = store.exists(manifest_uri(output))  # asked first: whoever writes it has read a plan
        standing = _bytes(store, uri)
        if standing is None:
            if is_finished:
                text = f"{output}: a finished run is there, and its plan is gone; choose another output"
                raise MessageError(ErrorCode.OUTPUT_IN_USE, text)
            store.probe(output)
            if listing is not None:
                store.put_bytes(listing.file.uri, listing.content, only_new=True)
            if store.put_bytes(uri, plan.model_dump_json().encode(), only_new=True).is_new:
                return plan
            standing = store.get_bytes(uri)
    return _adopted(standing, plan)


def load_plan(store: ObjectStore, uri: str, key: str | None = None) -> BulkPlan:
    """Return the plan at `uri`; blocks on the store.

    Args:
        store: where it is.
        uri: as `plan_uri` gives it.
        key: that it must have; None takes any.

    Raises:
        MessageError: `plan_missing`, it is gone, unreadable or another; or the store refuses or fails.
    """
    with refusing():
        content = _bytes(store, uri)
    if content is None:
        raise MessageError(ErrorCode.PLAN_MISSING, f"{uri}: there is no plan; plan the run again")
    plan = _parsed(content)
    if plan is None:
        raise MessageError(ErrorCode.PLAN_MISSING, f"{uri}: this is no plan of this version; plan the run again")
    if key is not None and plan_key(plan) != key:
        text = f"{uri}: this is another plan than the one that the shard was cut by; plan the run again"
        raise MessageError(ErrorCode.PLAN_MISSING, text)
    return plan


def table_files(stores: Stores, request: BulkRequest) -> tuple[list[InputFile], list[InputFile]]:
    """Return the tables to read, in plan order and not looked into, and those that an earlier run covers. Blocks.

    Raises:
        MessageError: as `plan_run`.
        StorageError: a store refuses or fails.
    """
    earlier = earlier_run(stores, request)
    found = [pinned(info, request.output) for info in list_inputs(stores, request.inputs, request.output)]
    fresh, covered = split_covered(arrange(found), earlier)
    if earlier is None:
        return fresh, []
    # What that run found in them holds still, so that they are not read again.
    known = {(file.uri, file.etag): file for file in (*earlier.inputs, *earlier.carried)}
    return fresh, [known[file.uri, file.etag] for file in covered]


def earlier_run(stores: Stores, request: BulkRequest) -> BulkManifest | None:
    """Return the manifest since which a run is asked for; None = there is none. Blocks; raises as `table_files`."""
    if request.since_manifest is None:
        return None
    uri = request.since_manifest
    content = stores.of(uri).get_bytes(uri)
    try:
        return BulkManifest.model_validate_json(content)
    except ValidationError:
        text = f"{uri}: this is no manifest of a bulk run; give the manifest.json that one left in its output"
        raise MessageError(ErrorCode.UNREADABLE_INPUT, text) from None


def described_files(
    stores: Stores, request: BulkRequest, files: Sequence[InputFile], texts: Sequence[str]
) -> list[Described]:
    """Look into the tables of a run, several at a time; see `tasks.bulk.inputs.describe`."""
    others = [] if request.id is None else [request.id]

    def look(file: InputFile) -> Described:
        return describe(stores.of(file.uri), file, texts=texts, others=others)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(look, files))


def _form(request: BulkClassify, described: Sequence[Described], results: tuple[ResultColumn, ...]) -> PartSchema:
    """Return the columns of every part. Raises ColumnError where the inputs have no such form."""
    schemas = [(one.file.uri, one.schema) for one in described]
    check_names(schemas, results, request.column_prefix)
    if request.id is not None:  # it stands beside these in the rejects
        ids = [(uri, only_columns(schema, [request.id])) for uri, schema in schemas]
        check_names(ids, REJECT_COLUMNS, request.column_prefix)
    return PartSchema(unify_schemas(schemas), results, request.column_prefix, {})


def table_policy(
    stores: Stores, described: Sequence[Described], measure: Callable[[Table], ShardPolicy]
) -> ShardPolicy:
    """Return how the rows of tables are cut, as measured by the first of them that has rows. Blocks for `measure`."""
    first = next((one.file for one in described if one.file.rows), None)
    if first is None:
        return ShardPolicy(rows_per_s=1.0)  # of no rows, any speed cuts alike
    with open_table(stores.of(first.uri), first) as table:
        return measure(table)


def _bytes(store: ObjectStore, uri: str) -> bytes | None:
    try:
        return store.get_bytes(uri)
    except NotFound:
        return None


def _parsed(content: bytes) -> BulkPlan | None:
    try:
        return BulkPlan.model_validate_json(content)
    except ValidationError:
        return None


def _adopted(content: bytes, plan: BulkPlan) -> BulkPlan:
    standing = _parsed(content)
    if standing is not None and standing.fingerprint == plan.fingerprint:
        return standing
    whose = "what is no plan of this version" if standing is None else f"run {standing.job_id}, of other work"
    text = f"{plan.request.output}: it holds {whose}; choose another output"
    raise MessageError(ErrorCode.OUTPUT_IN_USE, text)
