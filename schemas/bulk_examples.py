"""One small bulk run from request to manifest: what the JSON Schemas, the docs and the tests show.

It is built by the models, so an example that breaks the contract cannot be imported.
"""

from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, JsonValue

from schemas.bulk import BulkAnswer, BulkClassify, BulkShard
from schemas.bulk_manifest import SCORE_BINS, BulkManifest, Part, PartRecord, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import BatchLimits, BulkPlan, InputFile, OutputColumn, PlannedModel, Shard
from schemas.errors import ErrorCode
from schemas.results import ModelInfo

_FINGERPRINT: Final = "1f0c9a52" * 8
_PLAN_KEY: Final = "b7d2e4f1" * 8
_OUTPUT: Final = "s3://lake/labels/2026-01-01"
_PLAN: Final = f"{_OUTPUT}/_batchmill/plan.json"
_FOLDER: Final = "dt=2026-01-01"

REQUEST: Final = BulkClassify(
    inputs=["s3://lake/tickets/*/*.parquet"], output=_OUTPUT, subject="subject", body="body", id="ticket_id"
)

OCR_REQUEST: Final = BulkOcr(inputs=["s3://lake/scans/**/*.pdf"], output="s3://lake/texts/2026-01-01", last_page=20)

_INPUT: Final = InputFile(
    uri=f"s3://lake/tickets/{_FOLDER}/export.parquet",
    size_bytes=18_734,
    etag="6d0bb00954ceb7fbee436bb55a8397a9",
    rows=100,
    folder=_FOLDER,
)

PLAN: Final = BulkPlan(
    schema_version=1,
    job_id="5f0c1a9e-0d1c-4c52-9d2f-0f6b8f3f8a11",
    fingerprint=_FINGERPRINT,
    planned_at=datetime(2026, 1, 2, 1, 0, tzinfo=UTC),
    request=REQUEST,
    model=PlannedModel(name="tickets-en", version="1", sha256="9f2c" * 16, precision="int8-rowwise"),
    limits=BatchLimits(max_batch_size=32, max_batch_tokens=512, call_cost_tokens=16.0, planning_window=256),
    inputs=[_INPUT],
    columns=[
        OutputColumn(name="ticket_id", type="string"),
        OutputColumn(name="subject", type="string"),
        OutputColumn(name="body", type="string"),
        OutputColumn(name="label", type="string"),
        OutputColumn(name="score", type="float"),
        OutputColumn(name="truncated", type="bool"),
        OutputColumn(name="error_code", type="string"),
    ],
    shards=[Shard(file=0, start=0, stop=60), Shard(file=0, start=60, stop=100)],
)

ANSWER: Final = BulkAnswer(job_id=PLAN.job_id, shards=len(PLAN.shards), rows=PLAN.rows, output=_OUTPUT)

SHARD: Final = BulkShard(plan=_PLAN, plan_key=_PLAN_KEY, shard=1)

_MODEL: Final = ModelInfo(**PLAN.model.model_dump(), provider="CPUExecutionProvider", runtime="onnxruntime 1.32.0")

_TALLY: Final = Tally(
    rows=100,
    labelled=98,
    errors={ErrorCode.EMPTY_TEXT: 2},
    labels={"access": 40, "billing": 58},
    scores=[0] * (SCORE_BINS - 2) + [30, 68],
    truncated=1,
    repeated=5,
    tokens=4_870,
)

_SHARD_TALLY: Final = Tally(
    rows=40, labelled=40, labels={"billing": 40}, scores=[0] * (SCORE_BINS - 1) + [40], tokens=1_930
)

RECORD: Final = PartRecord(schema_version=1, plan_key=_PLAN_KEY, shard=SHARD.shard, model=_MODEL, tally=_SHARD_TALLY)

MANIFEST: Final = BulkManifest(
    schema_version=1,
    job_id=PLAN.job_id,
    fingerprint=_FINGERPRINT,
    plan=_PLAN,
    plan_key=_PLAN_KEY,
    started_at=PLAN.planned_at,
    finished_at=datetime(2026, 1, 2, 1, 0, 9, tzinfo=UTC),
    models=[_MODEL],
    parts=[
        Part(
            uri=f"{_OUTPUT}/{_FOLDER}/part-{shard:06d}-{_FINGERPRINT[:8]}-{_PLAN_KEY[:8]}.parquet",
            rows=PLAN.shards[shard].rows,
            size_bytes=size_bytes,
            sha256=digest * 16,
        )
        for shard, size_bytes, digest in ((0, 12_011, "41d8"), (1, 9_277, "c07e"))
    ],
    totals=_TALLY,
    label_shares={"billing": 0.591837, "access": 0.408163},
    rejection_rate=0.02,
    inputs=PLAN.inputs,
)


def example(model: BaseModel) -> JsonValue:
    """One of the examples as it stands in a message or a file."""
    value: JsonValue = model.model_dump(mode="json", exclude_unset=True)
    return value
