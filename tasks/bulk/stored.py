"""A file of a run as it stands in the store: what its footer says, and whether that is what the plan would have made.

A name alone proves nothing: a part counts only if the record within it is that of the plan, of the shard and of the
model. It reads footers and no rows, and does not know what the files add up to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from schemas.bulk_manifest import PageTally, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import PlannedModel
from tasks.bulk.columns import record_of
from worker.errors import UnreadableTable
from worker.storage.footer import FooterLimits, read_footer
from worker.storage.sources import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.bulk_manifest import PartRecord
    from schemas.bulk_plan import BulkPlan
    from worker.storage.objects import ObjectInfo, ObjectStore
    from worker.storage.tables import Schema

FOOTER_BYTES: Final = 64 * 1024
"""What is asked for at once, from the end: a footer of a few row groups and dozens of columns."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A file by its footer.

    Attributes:
        rows: in it.
        record: what it says of itself.
    """

    rows: int
    record: PartRecord


def read_part(store: ObjectStore, info: ObjectInfo) -> StoredPart:
    """Read a part's footer: one request, or two more if it is longer than `FOOTER_BYTES`. Blocks.

    Raises:
        UnreadableTable: it is no Parquet file, or damaged, or has no record.
        Changed: it is no longer the one that was listed.
    """
    with store.open(info, read_ahead_bytes=FOOTER_BYTES) as content:
        content.seek(max(info.size_bytes - FOOTER_BYTES, 0))
        content.read(1)  # the reader now holds all that is asked of it below
        # A BufferedIOBase is a BinaryIO, but for how typeshed names it.
        footer = read_footer(Source(cast("BinaryIO", content), info.uri), FooterLimits())
    return StoredPart(footer.rows, record_in(info.uri, footer.schema))


def record_in(uri: str, schema: Schema) -> PartRecord:
    """Return the record in a file's schema. Raises `UnreadableTable` if it has none that can be read."""
    try:
        return record_of(schema.metadata)
    except ValueError as error:
        raise UnreadableTable(uri, "no bulk run of this version wrote it: it has no record that can be read") from error


def contradictions(part: StoredPart, plan: BulkPlan, plan_key: str, shard: int) -> Iterator[str]:
    """Yield each thing that a part says otherwise than the plan; provider and runtime are its own.

    Args:
        part: the part.
        plan: the plan.
        plan_key: the plan's key, which takes a while to compute.
        shard: the index of the part's shard.
    """
    record = part.record
    model = PlannedModel(**record.model.model_dump(include=set(PlannedModel.model_fields)))
    for what, said, planned in (
        ("plan key", record.plan_key, plan_key),
        ("shard", record.shard, shard),
        *_counts(part, plan, plan.shards[shard].rows),
        ("model", _named(model), _named(plan.model)),
    ):
        if said != planned:
            yield f"{what}: {said} instead of {planned}"


def _counts(part: StoredPart, plan: BulkPlan, rows: int) -> Iterator[tuple[str, int, int]]:
    tally = part.record.tally
    if isinstance(plan.request, BulkOcr):
        yield "rows", part.rows, tally.rows
        yield "documents by its own count", tally.documents if isinstance(tally, PageTally) else 0, rows
    else:
        yield "rows", part.rows, rows
        yield "rows by its own count", tally.rows if isinstance(tally, Tally) else 0, rows


def _named(model: PlannedModel) -> str:
    return f"{model.name}@{model.version} {model.precision} {model.sha256}"
