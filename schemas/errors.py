"""Error codes: the one list of everything that can go wrong with an item or a message.

    Exception
    └── MessageError     a message that is wrong as a whole; it fails the Celery task

An item's failure is no exception to the producer: it is an `ItemError` beside the item's id, and the
other items of the message keep their results. A code is part of the contract: it keeps its meaning,
and the text beside it may be reworded. `schemas/catalogue.py` says what each code means.
This module does not know who raises what, nor how a failure is stored.
"""

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field


class ErrorCode(StrEnum):
    """Why an item or a whole message got no result."""

    # of one item, in its `error`; its neighbours are not affected
    EMPTY_TEXT = "empty_text"
    NULL_TEXT = "null_text"
    NOT_TEXT = "not_text"
    INVALID_UNICODE = "invalid_unicode"
    MISSING_TEXT = "missing_text"
    UNREADABLE_ROW = "unreadable_row"
    MODEL_OUTPUT_NOT_FINITE = "model_output_not_finite"
    INFERENCE_FAILED = "inference_failed"
    INFERENCE_TIMEOUT = "inference_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    MISSING_DOCUMENT = "missing_document"
    FORBIDDEN_URI = "forbidden_uri"
    INVALID_BASE64 = "invalid_base64"
    DOCUMENT_TOO_LARGE = "document_too_large"
    EMPTY_DOCUMENT = "empty_document"
    UNSUPPORTED_FORMAT = "unsupported_format"
    ENCRYPTED_DOCUMENT = "encrypted_document"
    DAMAGED_DOCUMENT = "damaged_document"
    TOO_MANY_PAGES = "too_many_pages"
    NO_SUCH_PAGE = "no_such_page"
    IMAGE_TOO_LARGE = "image_too_large"
    DECODE_TIMEOUT = "decode_timeout"

    # what a store answered: of one item (a document), or of a whole message (a bulk run)
    OBJECT_NOT_FOUND = "object_not_found"
    STORE_FORBIDDEN = "store_forbidden"
    STORE_UNAVAILABLE = "store_unavailable"

    # of a whole message; the Celery task fails
    INVALID_MESSAGE = "invalid_message"
    UNKNOWN_FIELD = "unknown_field"
    DUPLICATE_ID = "duplicate_id"
    NO_TICKETS = "no_tickets"
    TOO_MANY_TICKETS = "too_many_tickets"
    NO_DOCUMENTS = "no_documents"
    TOO_MANY_DOCUMENTS = "too_many_documents"
    MESSAGE_TOO_LARGE = "message_too_large"
    RESULT_TOO_LARGE = "result_too_large"
    UNKNOWN_MODEL = "unknown_model"
    PRIORITY_OUT_OF_RANGE = "priority_out_of_range"
    NOT_JSON = "not_json"
    WRONG_CONTENT_TYPE = "wrong_content_type"
    UNKNOWN_TASK = "unknown_task"
    NO_INPUTS = "no_inputs"
    UNREADABLE_INPUT = "unreadable_input"
    INPUT_CHANGED = "input_changed"
    UNKNOWN_COLUMN = "unknown_column"
    COLUMN_EXISTS = "column_exists"
    SCHEMA_MISMATCH = "schema_mismatch"
    OUT_OF_SPACE = "out_of_space"
    UNSUPPORTED_STORE = "unsupported_store"
    OUTPUT_IN_USE = "output_in_use"
    PLAN_MISSING = "plan_missing"
    PART_DIFFERS = "part_differs"
    TOO_MANY_REJECTED = "too_many_rejected"
    INTERNAL = "internal"


class ItemError(BaseModel):
    """Why one item has no result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: ErrorCode = Field(description="One of the item codes; branch on this.")
    message: str = Field(description="For people; its wording may change, and it never quotes the input.")


_SEPARATOR: Final = ": "


class MessageError(Exception):
    """A message that is wrong as a whole: permanent, so it is never retried.

    Its text is `code: message` and its `args` are that one string, which is what Celery stores, so a
    producer without this package still reads the code. Built from that one string alone it is the same
    error again: Celery does so at a producer that has imported this module. A code that this version
    does not know then reads as `internal`; the text keeps it.
    """

    code: ErrorCode

    def __init__(self, code: ErrorCode | str, message: str | None = None) -> None:
        if message is None:
            super().__init__(str(code))
            self.code = _code_in(str(code))
        else:
            super().__init__(f"{code}{_SEPARATOR}{message}")
            self.code = ErrorCode(code)


def _code_in(text: str) -> ErrorCode:
    code, _, _ = text.partition(_SEPARATOR)
    return ErrorCode(code) if code in _KNOWN_CODES else ErrorCode.INTERNAL


_KNOWN_CODES: Final = frozenset(code.value for code in ErrorCode)
