"""The columns of a run's files: those that it adds, those that a plan pins, and what a part says about itself.

Whoever writes or checks a part gets its form from the plan, here, so that it is the same on every worker. It knows
neither where the files are nor how a label is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.bulk import RESULT_COLUMNS
from schemas.bulk_manifest import PartRecord
from schemas.bulk_ocr import PAGE_COLUMNS, BulkOcr
from schemas.errors import ErrorCode, MessageError
from worker.storage.labelling import Kind, PartSchema, ResultColumn, inputs_of, write_part
from worker.storage.unify import only_columns, schema_from_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from schemas.bulk import BulkClassify
    from schemas.bulk_plan import BulkPlan, BulkRequest
    from worker.storage.labelling import Span
    from worker.storage.parts import Part

RECORD_KEY: Final = "batchmill"

_KINDS: Final = {
    "label": Kind.TEXT,
    "score": Kind.SCORE,
    "scores": Kind.SCORES,
    "truncated": Kind.FLAG,
    "error_code": Kind.TEXT,
    "file": Kind.TEXT,
    "row": Kind.COUNT,
    "uri": Kind.TEXT,
    "page": Kind.COUNT,
    "pages": Kind.COUNT,
    "width": Kind.COUNT,
    "height": Kind.COUNT,
    "rotation": Kind.COUNT,
    "text": Kind.TEXT,
    "confidence": Kind.SCORE,
    "lines": Kind.LINES,
}
REJECT_COLUMNS: Final = (
    ResultColumn("file", Kind.TEXT),
    ResultColumn("row", Kind.COUNT),
    ResultColumn("error_code", Kind.TEXT),
)
"""What a rejects file has beside the id: the input's address, the row in it, counted from 0, and what was wrong."""

PAGE_REJECT_COLUMNS: Final = tuple(ResultColumn(name, _KINDS[name]) for name in ("file", "row", "page", "error_code"))
"""The same of a run that reads documents; a document without any page has none."""


def result_columns(request: BulkClassify, *, is_multi_label: bool) -> tuple[ResultColumn, ...]:
    """Return the columns that a run adds to its inputs', named without the prefix, in their order."""
    has_scores = is_multi_label or request.top_k > 1
    return tuple(ResultColumn(name, _KINDS[name]) for name in RESULT_COLUMNS if name != "scores" or has_scores)


def page_columns(request: BulkOcr) -> tuple[ResultColumn, ...]:
    """Return the columns that a run writes of each page behind the document's id, named without the prefix."""
    has_uri = request.content is None
    return tuple(ResultColumn(name, _KINDS[name]) for name in PAGE_COLUMNS if name != "uri" or has_uri)


def reject_columns(request: BulkRequest) -> tuple[ResultColumn, ...]:
    """Return the columns of a rejects file behind the id, named without the prefix."""
    return PAGE_REJECT_COLUMNS if isinstance(request, BulkOcr) else REJECT_COLUMNS


def text_columns(request: BulkClassify) -> tuple[str, ...]:
    """Return the columns that a row's text is made of, in the order in which it is read."""
    named = (request.text, request.subject, request.body)
    return tuple(dict.fromkeys(column for column in named if column is not None))


def part_schema(plan: BulkPlan, metadata: Mapping[str, str] | None = None) -> PartSchema:
    """Return the form of every part.

    Args:
        plan: as `plan_run` made it.
        metadata: what `part_metadata` says of this one.

    Raises:
        MessageError: `plan_missing`, the plan does not say its columns exactly.
    """
    if plan.arrow_schema is None:
        text = f"the plan of run {plan.job_id} has no Arrow schema; plan the run again"
        raise MessageError(ErrorCode.PLAN_MISSING, text)
    ours = _planned_columns(plan)
    return PartSchema(
        inputs_of(schema_from_bytes(plan.arrow_schema), ours),
        ours,
        plan.request.column_prefix,
        metadata or {},
        plan.request.row_group_rows,
        plan.request.compression,
    )


def _planned_columns(plan: BulkPlan) -> tuple[ResultColumn, ...]:
    if isinstance(plan.request, BulkOcr):
        return page_columns(plan.request)
    # Ours are the last; an input may have a column called `scores` where they have none.
    last = [column.name for column in plan.columns][-len(RESULT_COLUMNS) :]
    has_scores = last == [plan.request.column_prefix + name for name in RESULT_COLUMNS]
    return tuple(ResultColumn(name, _KINDS[name]) for name in RESULT_COLUMNS if name != "scores" or has_scores)


def rejects_schema(plan: BulkPlan, metadata: Mapping[str, str] | None = None) -> PartSchema:
    """Return the form of every rejects file: the id if the request names it, then `reject_columns`; no texts.

    Raises:
        MessageError: as `part_schema`.
    """
    form = part_schema(plan, metadata)
    names = [] if plan.request.id is None else [plan.request.id]
    return PartSchema(
        only_columns(form.inputs, names),
        reject_columns(plan.request),
        form.prefix,
        form.metadata,
        form.row_group_rows,
        form.compression,
    )


def write_rejects(path: Path, span: Span, errors: Sequence[ErrorCode | None], form: PartSchema) -> Part:
    """Write which rows of a span have an error, and which; blocks on both files.

    Args:
        path: see `PartWriter`.
        span: the rows of the part.
        errors: of each row of the span.
        form: as `rejects_schema` gave it.

    Raises:
        ColumnError: an id does not fit the unified schema.
        TableError: the table cannot be read.
        BrokenPart: the file does not read back as written.
        ValueError: there are more or fewer `errors` than rows.
    """
    rows = range(span.start, span.stop)
    named = {"file": [span.table.name] * len(rows), "row": rows, "error_code": errors}
    return write_part(path, span, named, form, only=[row for row, code in enumerate(errors) if code is not None])


def part_metadata(record: PartRecord) -> dict[str, str]:
    """Return the key-value pairs of a part's file: its record, and beside it in plain words what made it. No times."""
    return {
        RECORD_KEY: record.model_dump_json(),
        f"{RECORD_KEY}.model.name": record.model.name,
        f"{RECORD_KEY}.model.version": record.model.version,
        f"{RECORD_KEY}.model.sha256": record.model.sha256,
    }


def record_of(metadata: Mapping[bytes, bytes] | None) -> PartRecord:
    """Return the record in the key-value pairs of a file, as an Arrow schema has them.

    Raises:
        ValueError: there is none, or none of this version: a run of ours did not write this file.
    """
    record = (metadata or {}).get(RECORD_KEY.encode())
    if record is None:
        raise ValueError("the file has no record of a run")
    return PartRecord.model_validate_json(record)
