"""Bulk runs as messages: the request `bulk.classify`, the answer of every request, and the internal `bulk.shard`.

A run reads the files that its inputs name and writes, below its output, one part for each shard of rows, then a
manifest (`schemas.bulk_manifest`). A shard's message says where the plan is (`schemas.bulk_plan`) and which shard of
it to do; it repeats nothing of the plan, so it cannot contradict it.
This module does not know which files, columns or models exist.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from schemas.errors import ErrorCode
from schemas.messages import TOP_K_MAX, ModelOption, ThresholdOption, TruncationOption
from schemas.refusal import parsed
from schemas.results import Count
from schemas.strict import STRICT

INPUTS_MAX: Final = 1_000
URI_CHARACTERS_MAX: Final = 2_048
COLUMN_CHARACTERS_MAX: Final = 256
SHARD_ROWS_MAX: Final = 10_000_000
ROW_GROUP_ROWS_MAX: Final = 10_000_000

RESULT_COLUMNS: Final = ("label", "score", "scores", "truncated", "error_code")
"""What a run adds to the input's columns, each behind `column_prefix`; `scores` only of a multi-label model
or where `top_k` asks for more than one."""

Compression = Literal["zstd", "snappy", "gzip", "none"]

Uri = Annotated[str, Field(min_length=1, max_length=URI_CHARACTERS_MAX)]
Column = Annotated[str, Field(min_length=1, max_length=COLUMN_CHARACTERS_MAX)]
ColumnPrefix = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_]*$")]
ShardRows = Annotated[int, Field(ge=1, le=SHARD_ROWS_MAX)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

# What the requests of all kinds of run have in common, to the word.
CompressionOption = Annotated[Compression, Field(description="The compression of the parts.")]
RowGroupRowsOption = Annotated[
    int, Field(ge=1, le=ROW_GROUP_ROWS_MAX, description="The most rows in a row group of the parts.")
]
StrictOption = Annotated[
    bool,
    Field(description="Whether the run fails if a part that was made twice differs; otherwise the manifest counts it."),
]

_GIVEN: Final[JsonValue] = {"type": "string"}
_LEFT_OUT: Final[JsonValue] = {"type": "null"}
_ONE_KIND_OF_TEXT: Final[list[JsonValue]] = [
    {"required": ["text"], "properties": {"text": _GIVEN, "subject": _LEFT_OUT, "body": _LEFT_OUT}},
    {
        "anyOf": [
            {"required": ["subject"], "properties": {"subject": _GIVEN}},
            {"required": ["body"], "properties": {"body": _GIVEN}},
        ],
        "properties": {"text": _LEFT_OUT},
    },
]


class BulkClassify(BaseModel):
    """The keyword arguments of the task `bulk.classify`."""

    model_config = ConfigDict(**STRICT, json_schema_extra={"oneOf": _ONE_KIND_OF_TEXT})

    inputs: list[Uri] = Field(
        min_length=1,
        max_length=INPUTS_MAX,
        description="Parquet, CSV or JSONL files: `s3://` addresses, local paths, or globs of either. Their order "
        "does not matter; a file that two of them match is read once.",
    )
    output: Uri = Field(description="The prefix or directory to write into, which holds this run only.")
    text: Column | None = Field(default=None, description="The column of the whole text.")
    subject: Column | None = Field(default=None, description="The column of the subject line, instead of `text`.")
    body: Column | None = Field(default=None, description="The column of what follows the subject line.")
    id: Column | None = Field(
        default=None, description="The column that names a row in the rejects; null: its file and row number do."
    )
    model: ModelOption = None
    top_k: int = Field(
        default=1,
        ge=1,
        le=TOP_K_MAX,
        description="Single-label models only: with more than 1, that many labels and their scores in `scores`.",
    )
    truncation: TruncationOption = "head_tail"
    threshold: ThresholdOption = None
    dedupe: bool = Field(default=True, description="Whether a text that a shard holds several times is run once.")
    column_prefix: ColumnPrefix = Field(
        default="",
        description="Stands before the names of the result columns, for inputs that have a `label` already.",
    )
    compression: CompressionOption = "zstd"
    row_group_rows: RowGroupRowsOption = 65_536
    shard_rows: ShardRows | None = Field(
        default=None,
        description="The most rows of a shard, and so of a part; null: a minute's work, the limit in any case.",
    )
    max_rejection_rate: Share = Field(
        default=0.5,
        description="The share of rows that may have an error instead of a label; beyond it the run fails.",
    )
    strict: StrictOption = False
    since_manifest: Uri | None = Field(
        default=None,
        description="An earlier run's manifest: the files that it covers, by address and ETag, are skipped.",
    )
    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")

    @model_validator(mode="after")
    def _has_one_kind_of_text(self) -> Self:
        in_parts = self.subject is not None or self.body is not None
        if (self.text is not None) == in_parts:
            kind, text = "not_one_kind_of_text", "give either text, or subject, body or both"
            raise PydanticCustomError(kind, text)
        return self


class BulkAnswer(BaseModel):
    """What `bulk.classify` and `bulk.ocr` return once the run is planned and its shards are on the queue."""

    model_config = STRICT

    job_id: str = Field(min_length=1, description="Names the run, for its status, its cancellation and its logs.")
    shards: Count = Field(description="Shards of the plan, those that are done already included.")
    rows: Count = Field(description="Rows of the plan, likewise; of `bulk.ocr` its documents.")
    output: Uri = Field(description="Where the run is: what `batchmill bulk status` and its like ask for.")


class BulkShard(BaseModel):
    """The keyword arguments of the internal task `bulk.shard`: which shard of which plan."""

    model_config = STRICT

    plan: Uri = Field(description="Where the plan is.")
    plan_key: Sha256 = Field(description="The key of that plan; of any other the shard is refused.")
    shard: int = Field(ge=0, description="The index of the shard in the plan's list.")
    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")


def parse_bulk_classify(args: Sequence[object], kwargs: Mapping[str, object]) -> BulkClassify:
    """The request in a message's positional and keyword arguments, as they come out of its JSON.

    Raises:
        MessageError: the message is wrong; the text names the field that is.
    """
    return parsed(BulkClassify, args, kwargs, codes=_CODES, texts=_TEXTS)


def parse_bulk_shard(args: Sequence[object], kwargs: Mapping[str, object]) -> BulkShard:
    """The shard's message, likewise.

    Raises:
        MessageError: the message is wrong; the text names the field that is.
    """
    return parsed(BulkShard, args, kwargs, codes=_CODES, texts=_TEXTS)


_CODES: Final = {"too_short": ErrorCode.NO_INPUTS}

_TEXTS: Final = {
    "too_short": "a run needs at least one input",
    "too_long": f"a run takes at most {INPUTS_MAX} inputs; use a glob",
}
