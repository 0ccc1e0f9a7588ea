"""Reads one file of a finished run to its last byte, and says what is wrong with it.

The bytes are held against the manifest, the columns against the plan, and what the file says of itself against both and
against its own rows, counted again. No metadata of the store is believed. It does not know what the other files hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, cast

from schemas.bulk import BulkClassify
from schemas.bulk_manifest import PageTally, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.errors import ErrorCode
from tasks.bulk.columns import part_schema, rejects_schema
from tasks.bulk.stored import StoredPart, contradictions, record_in
from tasks.bulk.tally import differences, merge, merge_pages, tally_pages, tally_rows
from worker.errors import TableError
from worker.storage.errors import Changed, NotFound
from worker.storage.objects import hashed
from worker.storage.parquet import ParquetTable
from worker.storage.recount import first_difference, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.bulk_manifest import Part, PartRecord
    from schemas.bulk_plan import BulkPlan, BulkRequest
    from worker.storage.objects import ObjectInfo, ObjectStore
    from worker.storage.tables import Schema


class Trouble(StrEnum):
    """What kind of thing was found."""

    # problems: the run is not what it should be
    MANIFEST = "manifest"
    SUCCESS = "success"
    PLAN = "plan"
    MISSING = "missing"
    SIZE = "size"
    SHA256 = "sha256"
    ROWS = "rows"
    UNREADABLE = "unreadable"
    RECORD = "record"
    SCHEMA = "schema"
    COUNTS = "counts"
    TOTALS = "totals"
    REJECTS = "rejects"

    # notes: the run is as good as it was
    STRAY = "stray"
    INPUT = "input"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        trouble: its kind.
        uri: the address that it is about.
        text: what is wrong there; quotes no row.
    """

    trouble: Trouble
    uri: str
    text: str

    def __str__(self) -> str:
        return f"{self.uri}: {self.text}"


@dataclass(frozen=True, slots=True)
class Audited:
    """What the reading of a file came to.

    Attributes:
        findings: what is wrong with it.
        record: what it says of itself, if that can be read.
        counted: what its columns hold, if they can be counted; tokens, repeated rows and lines are those of the record.
    """

    findings: tuple[Finding, ...]
    record: PartRecord | None = None
    counted: Tally | PageTally | None = None


def audit_part(store: ObjectStore, file: Part, plan: BulkPlan, plan_key: str, shard: int) -> Audited:
    """Read a part to its end. Blocks; holds what `worker.storage.parquet` states, and `HASHED_BYTES`.

    Args:
        store: where it is.
        file: as the manifest has it.
        plan: the run's plan.
        plan_key: the key of that plan.
        shard: the index of the part's shard.

    Raises:
        StorageError: the store refuses or fails, so that nothing can be said.
    """

    def look(table: ParquetTable) -> Audited:
        return _part_of(table, plan, plan_key, shard)

    return _audited(store, file, part_schema(plan).schema, look)


def audit_rejects(store: ObjectStore, file: Part, plan: BulkPlan, errors: dict[ErrorCode, int] | None) -> Audited:
    """Read the rejects of a part to their end, likewise; `errors` are the part's own by code, None if not known."""

    def look(table: ParquetTable) -> Audited:
        column = f"{plan.request.column_prefix}error_code"
        found: Counter[str] = Counter()
        for batch in values_of(table, [column]):
            found.update(batch[column])
        text = "its rows are not those of the part that have an error"
        return Audited(() if errors in (None, found) else (Finding(Trouble.REJECTS, file.uri, text),))

    return _audited(store, file, rejects_schema(plan).schema, look)


def _audited(store: ObjectStore, file: Part, expected: Schema, look: Callable[[ParquetTable], Audited]) -> Audited:
    try:
        info = store.info(file.uri)
        findings = _of_bytes(store, info, file)
        with store.open(info) as content:
            audited = _of_table(cast("BinaryIO", content), file, expected, look)
    except NotFound:
        return Audited((Finding(Trouble.MISSING, file.uri, "it is gone; the manifest has it"),))
    except Changed:
        return Audited((Finding(Trouble.SHA256, file.uri, "it became another while it was read"),))
    return Audited((*findings, *audited.findings), audited.record, audited.counted)


def _of_bytes(store: ObjectStore, info: ObjectInfo, file: Part) -> list[Finding]:
    if info.size_bytes != file.size_bytes:
        text = f"it has {info.size_bytes} bytes, by the manifest {file.size_bytes}"
        return [Finding(Trouble.SIZE, file.uri, text)]
    if hashed(store, info) != file.sha256:
        return [Finding(Trouble.SHA256, file.uri, "its bytes are not those of the SHA-256 in the manifest")]
    return []


def _of_table(content: BinaryIO, file: Part, expected: Schema, look: Callable[[ParquetTable], Audited]) -> Audited:
    findings: list[Finding] = []
    try:
        table = ParquetTable(content, file.uri)
        if table.rows != file.rows:
            findings.append(Finding(Trouble.ROWS, file.uri, f"it has {table.rows} rows, by the manifest {file.rows}"))
        difference = first_difference(table.schema, expected)
        if difference is None:
            audited = look(table)
            return Audited((*findings, *audited.findings), audited.record, audited.counted)
        findings.append(Finding(Trouble.SCHEMA, file.uri, f"its columns are not those of the plan: {difference}"))
        for _ in values_of(table, []):
            pass
    except TableError as error:
        findings.append(Finding(Trouble.UNREADABLE, file.uri, error.reason))
    return Audited(tuple(findings))


def _part_of(table: ParquetTable, plan: BulkPlan, plan_key: str, shard: int) -> Audited:
    try:
        record = record_in(table.name, table.schema)
    except TableError as error:
        return Audited((Finding(Trouble.RECORD, table.name, error.reason),))
    said = contradictions(StoredPart(table.rows, record), plan, plan_key, shard)
    findings = [Finding(Trouble.RECORD, table.name, text) for text in said]
    try:
        counted = _counted(table, plan.request, record.tally)
    except ValueError:
        text = "a row has a result and an error, a label without a score, or a value that no run writes"
        return Audited((*findings, Finding(Trouble.COUNTS, table.name, text)), record)
    if wrong := differences(counted, record.tally):
        text = f"its rows are not those that it counts itself: see {', '.join(wrong)}"
        findings.append(Finding(Trouble.COUNTS, table.name, text))
    return Audited(tuple(findings), record, counted)


def _counted(table: ParquetTable, request: BulkRequest, tally: Tally | PageTally) -> Tally | PageTally:
    """Count the rows again. Raises ValueError where columns contradict each other, or are of another kind of run."""
    if isinstance(tally, PageTally) and isinstance(request, BulkOcr):
        return _pages(table, request.column_prefix, tally)
    if isinstance(tally, Tally) and isinstance(request, BulkClassify):
        return _labels(table, request.column_prefix, tally)
    raise ValueError("the part counts what another kind of run does")


def _labels(table: ParquetTable, prefix: str, tally: Tally) -> Tally:
    names = [prefix + name for name in ("label", "score", "error_code", "truncated")]
    counted = merge(
        tally_rows(
            labels,
            scores,
            [None if code is None else ErrorCode(code) for code in errors],
            truncated=truncated.count(True),
            tokens=0,
            repeated=0,
        )
        for labels, scores, errors, truncated in ([batch[name] for name in names] for batch in values_of(table, names))
    )
    return counted.model_copy(update={"tokens": tally.tokens, "repeated": tally.repeated})


def _pages(table: ParquetTable, prefix: str, tally: PageTally) -> PageTally:
    names = [prefix + name for name in ("file", "row", "confidence", "error_code")]
    counted, last = [], None
    for batch in values_of(table, names):
        files, rows, confidences, errors = (batch[name] for name in names)
        owners = [last, *zip(files, rows, strict=True)]
        documents = sum(one != before for before, one in pairwise(owners))
        last = owners[-1]
        codes = [None if code is None else ErrorCode(code) for code in errors]
        counted.append(tally_pages(documents, codes, confidences, lines=0))
    return merge_pages(counted).model_copy(update={"lines": tally.lines})
