"""What a chain passes on: the result of `ocr.documents` as the only positional argument of `classify.tickets`.

A document becomes a ticket of the same id, its text the ticket's. One that could not be read keeps its error, beside
its neighbours' labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from schemas.errors import ErrorCode, ItemError, MessageError
from schemas.ocr import OcrResult


def tickets_of(args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[dict[str, object], dict[str, ItemError]]:
    """Return the keyword arguments that a chained message stands for, and the errors of documents by their ids.

    Args:
        args: the result that the task before returned, and nothing else.
        kwargs: the other fields of the message; no `tickets`.

    Raises:
        MessageError: it is no such message.
    """
    if len(args) != 1 or "tickets" in kwargs:
        text = "give the arguments by keyword; only the result of ocr.documents may come by position, without tickets"
        raise MessageError(ErrorCode.INVALID_MESSAGE, text)
    result = _result(args[0])
    tickets: list[Any] = [{"id": document.id, "text": document.text} for document in result.results]
    errors = {document.id: document.error for document in result.results if document.error is not None}
    return {**kwargs, "tickets": tickets}, errors


def _result(value: object) -> OcrResult:
    try:
        return OcrResult.model_validate(value)
    except ValidationError:
        text = "the positional argument is no result of ocr.documents"
    raise MessageError(ErrorCode.INVALID_MESSAGE, text)
