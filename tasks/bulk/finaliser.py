"""Ends a run once its last part is there: adds the parts up and writes `manifest.json`, then `_SUCCESS`.

Every end of a shard calls it, on any worker, and several at once: what it finds decides, not who asks. As long as a
part is missing it costs one listing. After that it is a function of what is stored: a run that was refused, because
too many rows have an error, say, is refused again and leaves nothing, and of two manifests written at once the first
stands. It reads what the parts say of themselves (`tasks.bulk.stored`), never their rows; whether that is true is for
`tasks.bulk.verify` to find out.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from schemas.bulk_manifest import BulkManifest, Part
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.layout import (
    differs_prefix,
    manifest_uri,
    normalised,
    part_uri,
    plan_uri,
    rejects_uri,
    success_uri,
)
from tasks.bulk.parts import missing_shards, part_names
from tasks.bulk.planning import plan_key
from tasks.bulk.stored import contradictions, read_part
from tasks.bulk.tally import check_rejections, label_shares, rejection_rate, total
from worker.errors import TableError
from worker.storage.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.bulk_manifest import PartRecord
    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.stored import StoredPart
    from worker.storage.objects import ObjectInfo, ObjectStore

READERS: Final = 8
LOOKS: Final = 3  # at a part that is wrong, because a bit may have flipped on the way


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a run is at its end: either shards are missing, or there is a manifest.

    Attributes:
        missing: the shards that have no part yet, ascending.
        manifest: the one that stands, whoever wrote it.
    """

    missing: tuple[int, ...] = ()
    manifest: BulkManifest | None = None


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


def finalise(store: ObjectStore, plan: BulkPlan, *, now: Callable[[], datetime] = utc_now) -> Verdict:
    """Write the manifest if every part is there. Idempotent, and safe beside others. Blocks on the store.

    Args:
        store: of the output.
        plan: as it is stored.
        now: the time for the manifest.

    Raises:
        MessageError: `output_in_use`: the manifest is of another run, or a part is not what the plan makes;
            `object_not_found`: the rejects of a part are gone; `part_differs`: the run is strict and a part was made
            twice with other bytes; `too_many_rejected`. No manifest is written then.
        StorageError: what the store could not do.
    """
    output = normalised(plan.request.output)
    found = {info.uri: info for info in store.list(f"{output}/")}
    if manifest_uri(output) in found:
        return _concluded(store, plan, output)
    names = part_names(plan)
    if missing := missing_shards(plan, (uri.removeprefix(f"{output}/") for uri in found)):
        return Verdict(missing=tuple(missing))
    manifest = _manifest(store, plan, [found[part_uri(output, name)] for name in names], now)
    _check(plan, manifest)
    if not store.put_bytes(manifest_uri(output), _encoded(manifest), only_new=True).is_new:
        return _concluded(store, plan, output)
    store.put_bytes(success_uri(output), b"", only_new=True)
    return Verdict(manifest=manifest)


def read_manifest(store: ObjectStore, output: str) -> BulkManifest | None:
    """Return the manifest of an output, None if there is none.

    Raises:
        MessageError: `output_in_use`: something else has its name.
    """
    uri = manifest_uri(output)
    try:
        return BulkManifest.model_validate_json(store.get_bytes(uri))
    except NotFound:
        return None
    except ValidationError as error:
        text = f"{uri}: this is no manifest of a bulk run, or a damaged one; give the run an output of its own"
        raise MessageError(ErrorCode.OUTPUT_IN_USE, text) from error


def _concluded(store: ObjectStore, plan: BulkPlan, output: str) -> Verdict:
    """Let a manifest of this plan stand."""
    manifest = read_manifest(store, output)
    if manifest is None or manifest.plan_key != plan_key(plan):
        text = (
            f"{manifest_uri(output)}: it is of another run, or was deleted just now; give each run an output of its own"
        )
        raise MessageError(ErrorCode.OUTPUT_IN_USE, text)
    store.put_bytes(success_uri(output), b"", only_new=True)
    return Verdict(manifest=manifest)


def _manifest(
    store: ObjectStore, plan: BulkPlan, found: Sequence[ObjectInfo], now: Callable[[], datetime]
) -> BulkManifest:
    output, key = normalised(plan.request.output), plan_key(plan)
    with ThreadPoolExecutor(READERS) as pool:
        stored = list(pool.map(lambda shard: _stored(store, found[shard], plan, key, shard), range(len(found))))
    totals = total((record.tally for _, record in stored), plan.request)
    return BulkManifest(
        job_id=plan.job_id,
        fingerprint=plan.fingerprint,
        plan=plan_uri(output),
        plan_key=key,
        started_at=plan.planned_at,
        finished_at=max(now(), plan.planned_at),  # the planner's clock may be ahead of this one
        models=list(dict.fromkeys(record.model for _, record in stored)),
        parts=[part for part, _ in stored],
        rejects=_rejects(store, plan, stored),
        totals=totals,
        label_shares=label_shares(totals),
        rejection_rate=rejection_rate(totals),
        differing_parts=len(_differing(store, output)),
        inputs=plan.inputs,
        carried=plan.carried,
    )


def _stored(store: ObjectStore, info: ObjectInfo, plan: BulkPlan, key: str, shard: int) -> tuple[Part, PartRecord]:
    for _ in range(LOOKS):
        try:
            read = read_part(store, info)
            wrong = "; ".join(contradictions(read, plan, key, shard))
        except TableError as error:
            wrong = error.reason
        if not wrong:
            return _file(store, info, read), read.record
    text = f"{info.uri}: this is not the part of shard {shard} ({wrong}); delete it, then resume the run"
    raise MessageError(ErrorCode.OUTPUT_IN_USE, text)


def _file(store: ObjectStore, info: ObjectInfo, read: StoredPart) -> Part:
    return Part(uri=info.uri, rows=read.rows, size_bytes=info.size_bytes, sha256=store.sha256(info.uri))


def _rejects(store: ObjectStore, plan: BulkPlan, stored: Sequence[tuple[Part, PartRecord]]) -> list[Part]:
    """Find the rejects of every part that has some."""
    output = normalised(plan.request.output)
    wanted = {
        rejects_uri(output, name, sha256): (part, record.tally.rejected, sha256)
        for name, (part, record) in zip(part_names(plan), stored, strict=True)
        if (sha256 := record.rejects_sha256) is not None
    }
    if not wanted:
        return []
    found = {info.uri: info.size_bytes for info in store.list(f"{next(iter(wanted)).rpartition('/')[0]}/")}
    for uri, (part, _, _) in wanted.items():
        if uri not in found:
            text = f"{uri}: the rejects of a part are gone; delete {part.uri} as well, then resume the run"
            raise MessageError(ErrorCode.OBJECT_NOT_FOUND, text)
    return [Part(uri=uri, rows=rows, size_bytes=found[uri], sha256=sha256) for uri, (_, rows, sha256) in wanted.items()]


def _differing(store: ObjectStore, output: str) -> set[str]:
    """Return the shards that were made twice with other bytes, each as its marker spells it."""
    return {info.uri.rpartition("/")[2].partition("-")[0] for info in store.list(differs_prefix(output))}


def _check(plan: BulkPlan, manifest: BulkManifest) -> None:
    if plan.request.strict and manifest.differing_parts:
        text = (
            f"{manifest.differing_parts} of {len(manifest.parts)} parts were made twice with other bytes; what stands "
            "is right, and a run without `strict` accepts it"
        )
        raise MessageError(ErrorCode.PART_DIFFERS, text)
    check_rejections(manifest.totals, plan.request.max_rejection_rate)


def _encoded(manifest: BulkManifest) -> bytes:
    return manifest.model_dump_json(indent=2).encode()
