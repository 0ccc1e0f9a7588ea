import pickle

import pytest
from celery import Celery

from schemas.catalogue import ITEM_CODES, MESSAGE_CODES, STORE_CODES
from schemas.errors import ErrorCode, MessageError


def test_every_code_is_explained_once() -> None:
    assert [*ITEM_CODES, *STORE_CODES, *MESSAGE_CODES] == list(ErrorCode)


def test_a_message_error_reads_as_code_and_text() -> None:
    error = MessageError(ErrorCode.UNKNOWN_MODEL, "there is no such model")
    assert str(error) == "unknown_model: there is no such model"
    assert error.args == ("unknown_model: there is no such model",)
    assert error.code is ErrorCode.UNKNOWN_MODEL


def test_a_message_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MessageError(ErrorCode.NO_TICKETS, "a: b")))  # noqa: S301 - our own bytes
    assert (error.code, str(error)) == (ErrorCode.NO_TICKETS, "no_tickets: a: b")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("unknown_field: tickets[0].x: no such field", ErrorCode.UNKNOWN_FIELD),
        ("a_code_of_a_later_version: text", ErrorCode.INTERNAL),
        ("no code at all", ErrorCode.INTERNAL),
        ("", ErrorCode.INTERNAL),
    ],
)
def test_a_stored_error_is_read_back_with_its_code_and_whole_text(text: str, code: ErrorCode) -> None:
    error = MessageError(text)
    assert (error.code, str(error)) == (code, text)


def test_an_unknown_code_cannot_be_raised() -> None:
    with pytest.raises(ValueError, match="no_such_code"):
        MessageError("no_such_code", "text")


def test_celery_gives_a_producer_the_same_error_back() -> None:
    backend = Celery(broker="memory://", backend="cache+memory://").backend
    stored = backend.decode(
        backend.encode(backend.prepare_exception(MessageError(ErrorCode.NO_TICKETS, "none"), "json"))
    )
    error = backend.exception_to_python(stored)
    assert isinstance(error, MessageError)
    assert (error.code, str(error)) == (ErrorCode.NO_TICKETS, "no_tickets: none")
