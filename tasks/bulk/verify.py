"""Looks whether a finished run is what its manifest says: reads every byte of it, and believes no metadata.

Three accounts of the same rows are held against each other: the manifest, the records that the parts carry, and the
columns of the parts themselves, counted again (`tasks.bulk.audit`). What is wrong with the run is a problem; what has
happened around it, such as an input that was replaced since, is a note. It mends nothing, and does not know what a
label should have been.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas.bulk_manifest import PageTally, Tally
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.audit import Audited, Finding, Trouble, audit_part, audit_rejects
from tasks.bulk.columns import part_schema
from tasks.bulk.coordinator import load_plan
from tasks.bulk.finaliser import read_manifest
from tasks.bulk.layout import (
    is_listing,
    is_of_a_run,
    manifest_uri,
    normalised,
    part_uri,
    plan_uri,
    rejects_prefix,
    rejects_uri,
    success_uri,
)
from tasks.bulk.parts import part_names
from tasks.bulk.tally import differences, label_shares, rejection_rate, total
from worker.storage.errors import NotFound, StorageError
from worker.storage.objects import hashed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.bulk_manifest import BulkManifest, Part
    from schemas.bulk_plan import BulkPlan, InputFile
    from tasks.bulk.stores import Stores
    from worker.storage.objects import ObjectStore

READERS: Final = 4
"""Parts that are read at once: each holds what `worker.storage.parquet` states."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found.

    Attributes:
        problems: what is wrong with the run, in the order of its rows; none if it is sound.
        notes: what else is worth knowing.
        manifest: the run's, if it has one.
        counted: what the parts that could be counted hold.
    """

    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    manifest: BulkManifest | None = None
    counted: Tally | PageTally = field(default_factory=Tally)


def verify(stores: Stores, output: str) -> Verified:
    """Verify the run below `output`. Blocks while all its parts are read; memory does not grow with their rows.

    Without a manifest and its plan nothing can be said of the parts, and they are not read.

    Raises:
        MessageError: a store refuses or fails while the plan is read.
        StorageError: likewise, later.
    """
    store, output = stores.of(output), normalised(output)
    manifest = _manifest(store, output)
    if isinstance(manifest, Finding):
        return Verified((manifest,))
    plan = _plan(store, manifest, output)
    if isinstance(plan, Finding):
        return Verified((plan,), manifest=manifest)
    with ThreadPoolExecutor(READERS) as pool:
        parts = list(
            pool.map(
                lambda shard: audit_part(store, manifest.parts[shard], plan, manifest.plan_key, shard),
                range(len(plan.shards)),
            )
        )
        rejects = list(pool.map(lambda kept: _rejects_of(store, plan, *kept), _kept_rejects(manifest, plan, parts)))
    problems = (
        *_of_manifest(store, manifest, plan, output),
        *_foreign_rejects(manifest, parts, plan),
        *(finding for audited in (*parts, *rejects) for finding in audited.findings),
        *_of_totals(manifest, parts, plan),
    )
    counted = total((audited.counted for audited in parts if audited.counted is not None), plan.request)
    return Verified(problems, (*_strays(store, manifest, output), *_inputs(stores, plan)), manifest, counted)


def _manifest(store: ObjectStore, output: str) -> BulkManifest | Finding:
    try:
        manifest = read_manifest(store, output)
    except MessageError:
        return Finding(Trouble.MANIFEST, manifest_uri(output), "this is no manifest of a bulk run, or a damaged one")
    return manifest or Finding(Trouble.MANIFEST, manifest_uri(output), "there is none: the run has not ended")


def _plan(store: ObjectStore, manifest: BulkManifest, output: str) -> BulkPlan | Finding:
    """Return the plan by which the parts can be judged, or why none can."""
    if manifest.plan != plan_uri(output):
        text = f"the run was written elsewhere, its plan is {manifest.plan}; verify it there"
        return Finding(Trouble.PLAN, manifest_uri(output), text)
    try:
        plan = load_plan(store, manifest.plan, manifest.plan_key)
        part_schema(plan)
    except MessageError as error:
        if error.code is not ErrorCode.PLAN_MISSING:
            raise
        text = "it is gone, damaged, or not the one that the manifest is of: the parts cannot be judged"
        return Finding(Trouble.PLAN, plan_uri(output), text)
    if [part.uri for part in manifest.parts] != [part_uri(output, name) for name in part_names(plan)]:
        return Finding(Trouble.PLAN, manifest_uri(output), "its parts are not those that the plan cuts")
    return plan


def _of_manifest(store: ObjectStore, manifest: BulkManifest, plan: BulkPlan, output: str) -> Iterator[Finding]:
    if not store.exists(success_uri(output)):
        yield Finding(Trouble.SUCCESS, success_uri(output), "it is missing: readers that wait for it see no result")
    names = ("job_id", "fingerprint", "inputs", "carried")
    wrong = [name for name in names if getattr(manifest, name) != getattr(plan, name)]
    if wrong or manifest.started_at != plan.planned_at:
        text = f"it says otherwise than the plan: see {', '.join(wrong or ['started_at'])}"
        yield Finding(Trouble.PLAN, manifest_uri(output), text)


def _kept_rejects(
    manifest: BulkManifest, plan: BulkPlan, parts: Sequence[Audited]
) -> Iterator[tuple[str, Part | None, dict[ErrorCode, int] | None]]:
    """Yield of each part that has rejects, or should have: their address, their entry, its errors if it has a count."""
    for shard, (name, audited) in enumerate(zip(part_names(plan), parts, strict=True)):
        entries = {file.uri: file for file in _rejects_named_like(name, manifest, plan)}
        record = audited.record
        sha256 = record.rejects_sha256 if record is not None and record.shard == shard else None
        uri = next(iter(entries), None) if sha256 is None else rejects_uri(plan.request.output, name, sha256)
        if uri is not None:
            yield uri, entries.get(uri), None if audited.counted is None else audited.counted.errors


def _rejects_named_like(part_name: str, manifest: BulkManifest, plan: BulkPlan) -> list[Part]:
    prefix = rejects_prefix(plan.request.output, part_name)
    return [file for file in manifest.rejects if file.uri.startswith(prefix)]


def _rejects_of(
    store: ObjectStore, plan: BulkPlan, uri: str, file: Part | None, errors: dict[ErrorCode, int] | None
) -> Audited:
    if file is None:
        text = "the manifest does not have it, and its part has rows with an error"
        return Audited((Finding(Trouble.REJECTS, uri, text),))
    return audit_rejects(store, file, plan, errors)


def _foreign_rejects(manifest: BulkManifest, parts: Sequence[Audited], plan: BulkPlan) -> Iterator[Finding]:
    kept = {uri for uri, _, _ in _kept_rejects(manifest, plan, parts)}
    for file in manifest.rejects:
        if file.uri not in kept:
            yield Finding(Trouble.REJECTS, file.uri, "the manifest has it, and it belongs to no part")


def _of_totals(manifest: BulkManifest, parts: Sequence[Audited], plan: BulkPlan) -> Iterator[Finding]:
    counted = [audited.counted for audited in parts if audited.counted is not None]
    made_by = {audited.record.model for audited in parts if audited.record is not None}
    wrong = []
    if len(counted) == len(parts):
        wrong += differences(manifest.totals, total(counted, plan.request))
    if manifest.label_shares != label_shares(manifest.totals):
        wrong.append("label_shares")
    if manifest.rejection_rate != rejection_rate(manifest.totals):
        wrong.append("rejection_rate")
    if not made_by <= set(manifest.models):
        wrong.append("models")
    if wrong:
        text = f"it does not add up to what the parts hold: see {', '.join(wrong)}"
        yield Finding(Trouble.TOTALS, manifest_uri(plan.request.output), text)


def _strays(store: ObjectStore, manifest: BulkManifest, output: str) -> Iterator[Finding]:
    ours = {part.uri for part in manifest.parts}
    for info in store.list(f"{output}/"):
        if info.uri.endswith(".parquet") and is_of_a_run(info.uri, output) and info.uri not in ours:
            yield Finding(Trouble.STRAY, info.uri, "it looks like a part, and is none of this run")


def _inputs(stores: Stores, plan: BulkPlan) -> list[Finding]:
    with ThreadPoolExecutor(READERS) as pool:
        return [finding for finding in pool.map(lambda file: _input(stores, file), plan.inputs) if finding is not None]


def _input(stores: Stores, file: InputFile) -> Finding | None:
    try:
        info = stores.of(file.uri).info(file.uri)
    except NotFound:
        return Finding(Trouble.INPUT, file.uri, "the input is gone since the run was planned")
    except StorageError as error:
        return Finding(Trouble.INPUT, file.uri, f"the input cannot be looked at: {error.what}")
    etag = hashed(stores.of(file.uri), info) if is_listing(file.uri) else info.etag  # see `tasks.bulk.listing`
    if (etag, info.size_bytes) == (file.etag, file.size_bytes):
        return None
    return Finding(Trouble.INPUT, file.uri, "the input was replaced since the run was planned")
