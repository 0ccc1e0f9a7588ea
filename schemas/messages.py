"""What a producer may send: the request of `classify.tickets`, and how a wrong one is refused.

A wrong text belongs to its ticket, so a text field accepts any value here and the worker answers with
that item's error; whatever else is wrong fails the message as a whole. The refusal names the field by
its path and quotes no value but a duplicate id, because it ends in logs and in the stored result.
This module does not know how a message travels, which models there are, nor what a usable text is.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.errors import ErrorCode
from schemas.refusal import parsed
from schemas.strict import STRICT

TICKETS_MAX: Final = 10_000
ID_CHARACTERS_MAX: Final = 256
MODEL_CHARACTERS_MAX: Final = 256
TOP_K_MAX: Final = 100

Truncation = Literal["head_tail", "head"]

# Options that requests of every kind have in common.
ModelOption = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=MODEL_CHARACTERS_MAX,
        description="Which of the worker's models to use; null means its default.",
    ),
]
TruncationOption = Annotated[
    Truncation,
    Field(description="What is kept of a text longer than the model reads: its start and end, or its start."),
]
ThresholdOption = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Multi-label models only: the score from which a label counts; null means 0.5.",
    ),
]

# What a right message holds, for the JSON Schema; the worker answers a wrong text item by item.
_TEXT: Final = WithJsonSchema({"type": "string"})
_ONE_KIND_OF_TEXT: Final[list[JsonValue]] = [
    {"required": ["text"], "properties": {"subject": False, "body": False}},
    {"anyOf": [{"required": ["subject"]}, {"required": ["body"]}], "properties": {"text": False}},
]


class Ticket(BaseModel):
    """One ticket: an id and either `text`, or `subject`, `body` or both."""

    # None stands for "left out" and for a null that was sent; `model_fields_set` tells them apart.
    model_config = ConfigDict(**STRICT, json_schema_extra={"oneOf": _ONE_KIND_OF_TEXT})

    id: str = Field(
        min_length=1,
        max_length=ID_CHARACTERS_MAX,
        description="Names the ticket in the result; unique within the message.",
    )
    text: Annotated[object, _TEXT] = Field(default=None, description="The whole ticket as one text.")
    subject: Annotated[object, _TEXT] = Field(default=None, description="The subject line.")
    body: Annotated[object, _TEXT] = Field(default=None, description="What follows the subject line.")

    @model_validator(mode="after")
    def _has_one_kind_of_text(self) -> Self:
        given = self.model_fields_set
        if "text" in given and ("subject" in given or "body" in given):
            kind, text = "two_kinds_of_text", "give either text, or subject and body"
            raise PydanticCustomError(kind, text)
        return self


class _Named(Protocol):
    id: str


Item = TypeVar("Item", bound=_Named)


def with_unique_ids(items: list[Item]) -> list[Item]:
    """Return the items of a message, for pydantic to refuse two of one id by their places."""
    if len({item.id for item in items}) == len(items):
        return items
    first_index: dict[str, int] = {}
    for index, item in enumerate(items):
        first = first_index.setdefault(item.id, index)
        if first != index:
            break
    text = "[{first}] and [{index}] both have the id {id}"
    kind = ErrorCode.DUPLICATE_ID.value
    raise PydanticCustomError(kind, text, {"first": first, "index": index, "id": repr(item.id)})


class ClassifyTickets(BaseModel):
    """The keyword arguments of the task `classify.tickets`."""

    model_config = STRICT

    tickets: Annotated[list[Ticket], FailFast(), AfterValidator(with_unique_ids)] = Field(
        min_length=1,
        max_length=TICKETS_MAX,
        description="The tickets; the results come back in the same order.",
    )
    model: ModelOption = None
    top_k: int = Field(
        default=1,
        ge=1,
        le=TOP_K_MAX,
        description="Single-label models only: how many of the best labels come back with their scores.",
    )
    truncation: TruncationOption = "head_tail"
    threshold: ThresholdOption = None
    schema_version: int = Field(default=1, ge=1, le=1, description="The version of this contract.")


def parse_classify(args: Sequence[object], kwargs: Mapping[str, object]) -> ClassifyTickets:
    """The request in a message's positional and keyword arguments, as they come out of its JSON.

    Takes microseconds (about 2 for one ticket, 1 more for each further one) and never blocks.

    Raises:
        MessageError: the message is wrong as a whole; the text names the field that is.
    """
    return parsed(ClassifyTickets, args, kwargs, codes=_CODES, texts=_TEXTS, nested=Ticket)


_CODES: Final = {
    "too_short": ErrorCode.NO_TICKETS,
    "too_long": ErrorCode.TOO_MANY_TICKETS,
    "duplicate_id": ErrorCode.DUPLICATE_ID,
}

_TEXTS: Final = {
    "too_short": "a message needs at least one ticket",
    "too_long": f"a message takes at most {TICKETS_MAX} tickets",
}
