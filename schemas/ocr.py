"""Text recognition as messages: the request `ocr.documents`, its result, and how a wrong one is refused.

A document that cannot be had or read is that document's error, so `uri` and `content` accept any value here and the
worker answers; whatever else is wrong fails the message as a whole. A refusal quotes no value.
This module does not know which formats there are, nor how a page is read.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, JsonValue, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from schemas.errors import ErrorCode, ItemError
from schemas.messages import ID_CHARACTERS_MAX, ModelOption, with_unique_ids
from schemas.refusal import parsed
from schemas.results import Count, ModelInfo, Score, Seconds
from schemas.strict import STRICT, contradiction

DOCUMENTS_MAX: Final = 1_000

_TEXT: Final = WithJsonSchema({"type": "string"})
_ONE_SOURCE: Final[list[JsonValue]] = [{"required": ["uri"]}, {"required": ["content"]}]

Rotation = Literal[0, 90, 180, 270]
Coordinate = Annotated[float, Field(allow_inf_nan=False)]
Point = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]


class Document(BaseModel):
    """One image or PDF: an id, and where its bytes are or the bytes themselves."""

    model_config = ConfigDict(**STRICT, json_schema_extra={"oneOf": _ONE_SOURCE})

    id: str = Field(
        min_length=1,
        max_length=ID_CHARACTERS_MAX,
        description="Names the document in the result; unique within the message.",
    )
    uri: Annotated[object, _TEXT] = Field(
        default=None, description="An `s3://bucket/key` that the worker's allow-list holds."
    )
    content: Annotated[object, _TEXT] = Field(default=None, description="The file's bytes in base64.")
    first_page: int = Field(default=1, ge=1, description="The first page to read, counted from 1.")
    last_page: int | None = Field(default=None, ge=1, description="The last page to read; null means the last one.")

    @model_validator(mode="after")
    def _is_one_document(self) -> Self:
        if {"uri", "content"} <= self.model_fields_set:
            raise PydanticCustomError("two_sources", "give either uri or content")
        if self.last_page is not None and self.last_page < self.first_page:
            raise PydanticCustomError("no_pages", "last_page comes before first_page")
        return self


class OcrDocuments(BaseModel):
    """The keyword arguments of the task `ocr.documents`."""

    model_config = STRICT

    documents: Annotated[list[Document], FailFast(), AfterValidator(with_unique_ids)] = Field(
        min_length=1, max_length=DOCUMENTS_MAX, description="The documents; the results come back in the same order."
    )
    model: ModelOption = None
    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")


class Line(BaseModel):
    """One line of text."""

    model_config = STRICT

    text: str = Field(min_length=1, description="What it says.")
    confidence: Score = Field(description="The mean over its characters.")
    box: list[Point] = Field(
        min_length=4,
        max_length=4,
        description="Its corners as [x, y] in pixels of the upright page, clockwise from where the text begins.",
    )


class PageResult(BaseModel):
    """One page: its lines in reading order, or `error`."""

    model_config = STRICT

    page: int = Field(ge=1, description="Its number, counted from 1.")
    width: Count = Field(description="Pixels of the upright page; 0 with `error`.")
    height: Count = Field(description="Likewise.")
    rotation: Rotation = Field(description="By how many degrees clockwise the page came turned, which was undone.")
    lines: list[Line] = Field(description="In reading order.")
    error: ItemError | None = Field(default=None, description="Why the page could not be read; else null.")

    @model_validator(mode="after")
    def _is_one_outcome(self) -> Self:
        if self.error is not None and self.lines:
            raise contradiction("inconsistent_result", "an error comes without lines")
        return self


class DocumentResult(BaseModel):
    """The one outcome of one document: its pages and their text, or `error`."""

    model_config = STRICT

    id: str = Field(min_length=1, max_length=ID_CHARACTERS_MAX, description="The document's id.")
    pages: list[PageResult] = Field(description="Those that were asked for, in order; empty with `error`.")
    text: str = Field(description="All lines, pages apart by a form feed; empty with `error`.")
    error: ItemError | None = Field(default=None, description="Why nothing of it could be read; else null.")

    @model_validator(mode="after")
    def _is_one_outcome(self) -> Self:
        if self.error is not None and (self.pages or self.text):
            raise contradiction("inconsistent_result", "an error comes without pages and without text")
        return self


class OcrTimings(BaseModel):
    """What the message took: seconds are wall clock, counts are over the whole message."""

    model_config = STRICT

    queue_wait_s: Seconds = Field(
        description="From the header `enqueued_at`, or else from when a worker first saw the message, "
        "to when its first document was opened."
    )
    queue_wait_is_lower_bound: bool = Field(
        description="True without the header `enqueued_at`: the message may have waited longer."
    )
    inference_s: Seconds = Field(description="Duration of the batches of all stages, added up.")
    batches: Count = Field(description="How many there were.")
    pages: Count = Field(description="Pages in the result.")
    lines: Count = Field(description="Lines on them.")


class OcrResult(BaseModel):
    """The return value of the task `ocr.documents`."""

    model_config = STRICT

    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")
    results: list[DocumentResult] = Field(
        min_length=1, max_length=DOCUMENTS_MAX, description="One result for each document, in the order of the request."
    )
    model: ModelInfo = Field(description="What made the results; its sha256 is over those of the profile's files.")
    timings: OcrTimings = Field(description="What the message took.")


def parse_ocr(args: Sequence[object], kwargs: Mapping[str, object]) -> OcrDocuments:
    """The request in a message's positional and keyword arguments, as they come out of its JSON.

    Raises:
        MessageError: the message is wrong as a whole; the text names the field that is.
    """
    return parsed(OcrDocuments, args, kwargs, codes=_CODES, texts=_TEXTS, nested=Document)


_CODES: Final = {
    "too_short": ErrorCode.NO_DOCUMENTS,
    "too_long": ErrorCode.TOO_MANY_DOCUMENTS,
    "duplicate_id": ErrorCode.DUPLICATE_ID,
}

_TEXTS: Final = {
    "too_short": "a message needs at least one document",
    "too_long": f"a message takes at most {DOCUMENTS_MAX} documents",
}
