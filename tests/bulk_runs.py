"""A bulk run as its shards leave it, without a model: a plan, parts with records, rejects and markers."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.bulk import BulkClassify
from schemas.bulk_manifest import PartRecord
from schemas.bulk_plan import BatchLimits, BulkPlan, InputFile, OutputColumn, PlannedModel, Shard
from schemas.errors import ErrorCode
from schemas.results import ModelInfo
from tasks.bulk.columns import part_metadata, part_schema, rejects_schema, result_columns, write_rejects
from tasks.bulk.layout import differs_uri, part_uri, plan_uri, rejects_uri
from tasks.bulk.parts import part_names
from tasks.bulk.planning import fingerprint, plan_key
from tasks.bulk.tally import tally_rows
from worker.storage.labelling import PartSchema, Span, write_part
from worker.storage.parquet import ParquetTable
from worker.storage.unify import column_types, schema_to_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from worker.storage.objects import ObjectStore

PLANNED_AT: Final = datetime(2026, 1, 2, 1, 0, tzinfo=UTC)
MODEL: Final = PlannedModel(name="tickets-en", version="1", sha256="9f2c" * 16, precision="fp32")
LIMITS: Final = BatchLimits(max_batch_size=32, max_batch_tokens=512, call_cost_tokens=16.0, planning_window=256)
INPUTS: Final = pa.schema([("ticket_id", pa.string()), ("body", pa.string()), ("tags", pa.list_(pa.string()))])
SHARD_ROWS: Final = 40


@dataclass(frozen=True)
class BulkRun:
    """A run below a prefix.

    Attributes:
        store: of inputs and output.
        output: the prefix.
        directory: for files on their way.
        plan: stored already.
        rejects_sha256: of the rejects that were written, by shard.
    """

    store: ObjectStore
    output: str
    directory: Path
    plan: BulkPlan
    rejects_sha256: dict[int, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return plan_key(self.plan)

    def part(self, shard: int) -> str:
        return part_uri(self.output, part_names(self.plan)[shard])

    def rejects(self, shard: int) -> str:
        """Return where the rejects are that `finish` wrote for a shard."""
        return rejects_uri(self.output, part_names(self.plan)[shard], self.rejects_sha256[shard])

    def record(
        self,
        shard: int,
        *,
        rejected: int = 0,
        provider: str = "CPUExecutionProvider",
        rejects_sha256: str | None = None,
    ) -> PartRecord:
        said = results(self.plan.shards[shard].rows, rejected)
        errors = [None if code is None else ErrorCode(code) for code in said["error_code"]]
        model = ModelInfo(**MODEL.model_dump(), provider=provider, runtime="onnxruntime 1.32.0")
        tally = tally_rows(said["label"], said["score"], errors, truncated=1, tokens=500, repeated=3)
        if rejected and rejects_sha256 is None:
            rejects_sha256 = "0" * 64
        return PartRecord(plan_key=self.key, shard=shard, model=model, tally=tally, rejects_sha256=rejects_sha256)

    def finish(self, shard: int, *, rejected: int = 0, record: PartRecord | None = None, **other: object) -> None:
        """Write a shard's rejects, if it has any, and its part."""
        said = results(self.plan.shards[shard].rows, rejected)
        rejects_sha256 = None
        if rejected:
            errors = [None if code is None else ErrorCode(code) for code in said["error_code"]]
            path = self.directory / "rejects"
            rejects_sha256 = write_rejects(path, self._span(shard), errors, rejects_schema(self.plan)).sha256
            self.rejects_sha256[shard] = rejects_sha256
            self.store.create(self.rejects(shard), path, rejects_sha256)
        metadata = part_metadata(record or self.record(shard, rejected=rejected, rejects_sha256=rejects_sha256))
        form = replace(part_schema(self.plan, metadata), **other)
        path = self.directory / "part"
        self.store.create(self.part(shard), path, write_part(path, self._span(shard), said, form).sha256)

    def finish_all(self, *, rejected: int = 0) -> None:
        for shard in range(len(self.plan.shards)):
            self.finish(shard, rejected=rejected)

    def mark_as_different(self, shard: int, content: bytes = b"other") -> None:
        self.store.put_bytes(differs_uri(self.output, shard, hashlib.sha256(content).hexdigest()), b"", only_new=True)

    def _span(self, shard: int) -> Span:
        cut = self.plan.shards[shard]
        info = self.store.info(self.plan.inputs[cut.file].uri)
        return Span(ParquetTable(io.BytesIO(self.store.get_bytes(info.uri)), info.uri), cut.start, cut.stop)


def results(rows: int, rejected: int = 0) -> dict[str, list[Any]]:
    """Return what the model said: the first rows are rejected, the others alternate between two labels."""
    wrong = [row < rejected for row in range(rows)]
    return {
        "label": [None if bad else ("access", "billing")[row % 2] for row, bad in enumerate(wrong)],
        "score": [None if bad else round(0.5 + row / 100, 4) for row, bad in enumerate(wrong)],
        "truncated": [row == rows - 1 for row in range(rows)],
        "error_code": ["empty_text" if bad else None for bad in wrong],
    }


def new_run(store: ObjectStore, prefix: str, directory: Path, *, shards: int = 3, **request: object) -> BulkRun:
    """Store the input and the plan of a run of `shards` parts."""
    directory.mkdir(parents=True, exist_ok=True)
    asked = BulkClassify(
        inputs=[f"{prefix}/in/*.parquet"], output=f"{prefix}/out/", body="body", id="ticket_id", **request
    )
    file = _store_input(store, f"{prefix}/in/dt=2026-01-01/tickets.parquet", shards * SHARD_ROWS)
    form = PartSchema(INPUTS, result_columns(asked, is_multi_label=False), asked.column_prefix, {})
    inputs = [file] if shards else []
    plan = BulkPlan(
        job_id="run-1",
        fingerprint=fingerprint(inputs, MODEL, asked),
        planned_at=PLANNED_AT,
        request=asked,
        model=MODEL,
        limits=LIMITS,
        inputs=inputs,
        columns=[OutputColumn(name=name, type=kind) for name, kind in column_types(form.schema)],
        arrow_schema=schema_to_bytes(form.schema),
        shards=[Shard(file=0, start=at, stop=at + SHARD_ROWS) for at in range(0, shards * SHARD_ROWS, SHARD_ROWS)],
    )
    store.put_bytes(plan_uri(asked.output), plan.model_dump_json().encode(), only_new=True)
    return BulkRun(store, f"{prefix}/out", directory, plan)


def _store_input(store: ObjectStore, uri: str, rows: int) -> InputFile:
    columns = [[f"T-{row}" for row in range(rows)], [f"text {row}" for row in range(rows)], [["a"]] * rows]
    content = io.BytesIO()
    pq.write_table(pa.table(columns, schema=INPUTS), content)
    store.put_bytes(uri, content.getvalue())
    info = store.info(uri)
    return InputFile(uri=uri, size_bytes=info.size_bytes, etag=info.etag, rows=rows, folder="dt=2026-01-01")
