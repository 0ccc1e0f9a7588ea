"""Bulk runs that read documents: the request `bulk.ocr`, and the columns of what it writes.

The documents are named by a column of the inputs, or lie in one, or are the inputs themselves. Answer, shards, plan and
manifest are those of every bulk run (`schemas.bulk`). This module does not know which formats a document may have.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from schemas.bulk import (
    INPUTS_MAX,
    Column,
    ColumnPrefix,
    CompressionOption,
    RowGroupRowsOption,
    ShardRows,
    Share,
    StrictOption,
    Uri,
)
from schemas.errors import ErrorCode
from schemas.messages import ModelOption
from schemas.refusal import parsed
from schemas.strict import STRICT

PAGE_COLUMNS: Final = (
    "file",
    "row",
    "uri",
    "page",
    "pages",
    "width",
    "height",
    "rotation",
    "text",
    "confidence",
    "lines",
    "error_code",
)
"""The columns of a part behind the id's, each behind `column_prefix`; `uri` only where documents have an address."""

_GIVEN: Final[JsonValue] = {"type": "string"}
_LEFT_OUT: Final[JsonValue] = {"type": "null"}
_ONE_SOURCE: Final[list[JsonValue]] = [
    {"required": ["uri"], "properties": {"uri": _GIVEN, "content": _LEFT_OUT}},
    {"required": ["content"], "properties": {"uri": _LEFT_OUT, "content": _GIVEN}},
    {"properties": {"uri": _LEFT_OUT, "content": _LEFT_OUT, "id": _LEFT_OUT}},
]


class BulkOcr(BaseModel):
    """The keyword arguments of the task `bulk.ocr`."""

    model_config = ConfigDict(**STRICT, json_schema_extra={"oneOf": _ONE_SOURCE})

    inputs: list[Uri] = Field(
        min_length=1,
        max_length=INPUTS_MAX,
        description="With `uri` or `content`: Parquet, CSV or JSONL files. Without: the documents themselves, each "
        "object or file that an address, a prefix, a directory or a glob means.",
    )
    output: Uri = Field(description="The prefix or directory to write into, which holds this run only.")
    uri: Column | None = Field(
        default=None, description="The column of the documents' addresses, which the worker's allow-list must hold."
    )
    content: Column | None = Field(
        default=None, description="The column of the documents themselves: binary, or text in base64."
    )
    id: Column | None = Field(
        default=None, description="The column that names a document; null: its file and row number do, or its address."
    )
    first_page: int = Field(default=1, ge=1, description="The first page to read of each document, counted from 1.")
    last_page: int | None = Field(
        default=None, ge=1, description="The last page to read, of a shorter document its last; null means all."
    )
    model: ModelOption = None
    column_prefix: ColumnPrefix = Field(
        default="",
        description="Stands before the names of the result columns, for an id that is called as one of them.",
    )
    compression: CompressionOption = "zstd"
    row_group_rows: RowGroupRowsOption = 65_536
    shard_rows: ShardRows | None = Field(
        default=None,
        description="The most documents of a shard; null: a minute's work by estimate, the limit in any case.",
    )
    max_rejection_rate: Share = Field(
        default=0.5,
        description="The share of rows that may have an error instead of a text; beyond it the run fails.",
    )
    strict: StrictOption = False
    since_manifest: Uri | None = Field(
        default=None,
        description="An earlier run's manifest: the inputs that it covers, by address and ETag, are skipped.",
    )
    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")

    @property
    def reads_tables(self) -> bool:
        """Whether the inputs are tables that name or hold the documents; else they are the documents."""
        return self.uri is not None or self.content is not None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.uri is not None and self.content is not None:
            raise PydanticCustomError("two_sources", "give either uri or content, or neither for inputs of documents")
        if self.id is not None and not self.reads_tables:
            raise PydanticCustomError("no_column", "id names a column: give uri or content too, or leave id out")
        if self.last_page is not None and self.last_page < self.first_page:
            raise PydanticCustomError("no_pages", "last_page comes before first_page")
        return self


def parse_bulk_ocr(args: Sequence[object], kwargs: Mapping[str, object]) -> BulkOcr:
    """The request in a message's positional and keyword arguments, as they come out of its JSON.

    Raises:
        MessageError: the message is wrong; the text names the field that is.
    """
    return parsed(BulkOcr, args, kwargs, codes={"too_short": ErrorCode.NO_INPUTS}, texts=_TEXTS)


_TEXTS: Final = {
    "too_short": "a run needs at least one input",
    "too_long": f"a run takes at most {INPUTS_MAX} inputs; use a glob or a prefix",
}
