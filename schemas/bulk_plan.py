"""The plan of a bulk run: `plan.json`, written once before the first shard and never changed.

It pins everything that decides what the parts hold: the files by ETag, the model by hash, the request, how batches are
planned, and where the rows are cut. Whoever resumes the run, on whichever machine, reads this plan and makes no other.
This module reads no files and does not know how a plan is made.
"""

from typing import Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from schemas.bulk import BulkClassify, Sha256, Uri
from schemas.bulk_ocr import BulkOcr
from schemas.results import Count
from schemas.strict import STRICT, contradiction

PLAN_FILE: Final = "plan.json"

InputFormat = Literal["parquet", "csv", "jsonl"]
BulkRequest = BulkClassify | BulkOcr
"""What a run may be asked for; no request is right for both."""


class LineScan(BaseModel):
    """What one pass over a CSV or JSONL file found, which has no footer to tell it."""

    model_config = STRICT

    columns: list[str] = Field(description="The header's columns, or the keys of all objects.")
    marks: list[Count] = Field(description="The byte at which every 4,096th row begins.")


class InputFile(BaseModel):
    """One file as it was when the run was planned."""

    model_config = STRICT

    uri: Uri = Field(description="The file's address.")
    size_bytes: Count = Field(description="Its size.")
    etag: str = Field(min_length=1, description="Its ETag, as the store gives it.")
    version: str | None = Field(default=None, description="Its version id, where the store keeps versions.")
    rows: Count = Field(description="Its rows.")
    format: InputFormat = Field(default="parquet", description="How it is read.")
    scan: LineScan | None = Field(default=None, description="Of CSV and JSONL: where its rows are.")
    folder: str = Field(
        default="", description="The partition folders that its parts keep, such as `dt=2026-01-01`; empty: none."
    )


class Shard(BaseModel):
    """Rows of one file, which become one part."""

    model_config = STRICT

    file: int = Field(ge=0, description="The index of the file in the plan's inputs.")
    start: int = Field(ge=0, description="The first row, counted from 0 within the file.")
    stop: int = Field(ge=0, description="The row after the last.")

    @property
    def rows(self) -> int:
        """How many rows it has; 0 only where the whole run has none."""
        return self.stop - self.start


class PlannedModel(BaseModel):
    """The model that every part of the run is made by."""

    model_config = STRICT

    name: str = Field(description="The model's name.")
    version: str = Field(description="The model's version.")
    sha256: Sha256 = Field(description="The SHA-256 of the model's ONNX file, in hex.")
    precision: str = Field(description="How weights and products are computed, such as `fp32`.")


class BatchLimits(BaseModel):
    """How a shard's rows are planned into batches, whichever machine runs it."""

    model_config = STRICT

    max_batch_size: int = Field(ge=1, description="The most rows in a batch.")
    max_batch_tokens: int = Field(ge=1, description="The most rows × longest row; a longer row runs alone.")
    call_cost_tokens: float = Field(
        ge=0, allow_inf_nan=False, description="What one call of the model costs beyond its tokens, in padded tokens."
    )
    planning_window: int = Field(ge=1, description="Rows that are planned together.")


class OutputColumn(BaseModel):
    """A column of every part."""

    model_config = STRICT

    name: str = Field(description="The column's name.")
    type: str = Field(description="Its type as Arrow spells it, such as `timestamp[ns, tz=UTC]`.")


class BulkPlan(BaseModel):
    """What a run does: read by every shard, by `resume` and by whoever wants to know why a part is as it is."""

    model_config = ConfigDict(**STRICT, ser_json_bytes="base64", val_json_bytes="base64")

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this document's form.")
    job_id: str = Field(min_length=1, description="Names the run.")
    fingerprint: Sha256 = Field(description="Of inputs, model and settings: the same work has the same one.")
    planned_at: AwareDatetime = Field(description="When the plan was made.")
    request: BulkRequest = Field(description="The request as it was sent.")
    model: PlannedModel = Field(description="The model.")
    limits: BatchLimits | None = Field(
        default=None,
        description="How batches of rows are planned. Null where documents are read: what a line says does not depend "
        "on its batch.",
    )
    inputs: list[InputFile] = Field(
        description="The files, in the order in which their rows come out; none if an earlier run covers them all. "
        "Of documents that are files themselves: the one list of them that the run made."
    )
    carried: list[InputFile] = Field(
        default_factory=list, description="Files that match the request, skipped because an earlier run covers them."
    )
    columns: list[OutputColumn] = Field(description="The columns of every part, in order, unified over the inputs.")
    arrow_schema: bytes | None = Field(
        default=None, description="The same columns as an Arrow IPC schema, in base64url: exact also for nested types."
    )
    shards: list[Shard] = Field(description="The shards; one part each, in this order.")

    @property
    def rows(self) -> int:
        """Rows of the whole run."""
        return sum(file.rows for file in self.inputs)

    @model_validator(mode="after")
    def _says_how_rows_are_batched(self) -> Self:
        if self.limits is None and isinstance(self.request, BulkClassify):
            raise contradiction("inconsistent_plan", "rows are labelled, and how they are batched is not said")
        return self

    @model_validator(mode="after")
    def _has_every_row_once(self) -> Self:
        file, row = 0, 0
        for index, shard in enumerate(self.shards):
            while file < shard.file and file < len(self.inputs) and row == self.inputs[file].rows:
                file, row = file + 1, 0
            in_order = (shard.file, shard.start) == (file, row) and file < len(self.inputs)
            if not in_order or shard.stop < shard.start or shard.stop > self.inputs[file].rows:
                raise contradiction("inconsistent_plan", f"shard {index} does not go on where the one before it ends")
            row = shard.stop
        if sum(shard.rows for shard in self.shards) != self.rows:
            raise contradiction("inconsistent_plan", "the shards do not hold every row")
        return self
