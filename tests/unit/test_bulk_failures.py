"""What a failure of a bulk run means: no leaf of the exception trees is forgotten."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

import worker.storage.errors as storage_errors
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.failures import CODES, is_doubtful, is_transient, refusal, refusing
from worker import errors
from worker.errors import BatchmillError, BrokenPart, ColumnError, Draining, ItemFailed, TableError, UnreadableTable
from worker.storage.errors import (
    BadLocation,
    Changed,
    Damaged,
    Forbidden,
    NotConditional,
    NotFound,
    OutOfSpace,
    StorageError,
    TooLarge,
    Unavailable,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

URI = "s3://lake/a.parquet"
FULL = (OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Disk quota exceeded"))


def kinds(base: type[BatchmillError] = BatchmillError) -> Iterator[type[BatchmillError]]:
    if base.__module__ in (errors.__name__, storage_errors.__name__):  # tests have leaves of their own
        yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_every_class_of_the_trees_has_a_code() -> None:
    assert set(CODES) == set(kinds())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TooLarge(URI, "no"), ErrorCode.RESULT_TOO_LARGE),
        (Damaged(URI, "no"), ErrorCode.UNREADABLE_INPUT),
        (BadLocation(URI, "no"), ErrorCode.INVALID_MESSAGE),
        (Changed(URI, "no"), ErrorCode.INPUT_CHANGED),
        (NotFound(URI, "no"), ErrorCode.OBJECT_NOT_FOUND),
        (Forbidden(URI, "no"), ErrorCode.STORE_FORBIDDEN),
        (Unavailable(URI, "no"), ErrorCode.STORE_UNAVAILABLE),
        (OutOfSpace(URI, "no"), ErrorCode.OUT_OF_SPACE),
        (NotConditional(URI, "no"), ErrorCode.UNSUPPORTED_STORE),
        (StorageError(URI, "no"), ErrorCode.STORE_FORBIDDEN),
        (UnreadableTable(URI, "no"), ErrorCode.UNREADABLE_INPUT),
        (ColumnError(URI, "text", "no"), ErrorCode.SCHEMA_MISMATCH),
        (ColumnError(URI, "text", "no", ErrorCode.COLUMN_EXISTS), ErrorCode.COLUMN_EXISTS),
        (BrokenPart(f"{URI}: no"), ErrorCode.INTERNAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_refusal_has_the_contracts_code_and_the_failures_own_words(error: BatchmillError, code: ErrorCode) -> None:
    refused = refusal(error)
    assert refused.code is code
    assert str(refused) == f"{code}: {error}"
    assert URI in str(refused)


@pytest.mark.parametrize("error", FULL)
def test_a_full_disk_under_a_part_is_told_as_such(error: OSError) -> None:
    assert refusal(error).code is ErrorCode.OUT_OF_SPACE
    assert is_transient(error)


def test_a_leaf_that_comes_later_is_refused_as_what_it_is_a_kind_of() -> None:
    class Throttled(Unavailable):
        pass

    assert refusal(Throttled(URI, "no")).code is ErrorCode.STORE_UNAVAILABLE


def test_what_nobody_foresaw_is_internal_and_keeps_its_words_to_itself() -> None:
    refused = refusal(ValueError("the text of a ticket"))
    assert refused.code is ErrorCode.INTERNAL
    assert "ticket" not in str(refused)
    assert "ValueError" in str(refused)


def test_what_is_in_the_contracts_words_stays() -> None:
    error = MessageError(ErrorCode.NO_INPUTS, "none")
    assert refusal(error) is error


def test_transient_is_what_another_try_may_mend() -> None:
    def example(kind: type[BatchmillError]) -> BatchmillError:
        if issubclass(kind, StorageError | TableError) and kind is not ColumnError:
            return kind(URI, "no")
        special: dict[type[BatchmillError], BatchmillError] = {
            ColumnError: ColumnError(URI, "text", "no"),
            ItemFailed: ItemFailed(ErrorCode.NULL_TEXT, "no"),
            errors.BatchTimeout: errors.BatchTimeout(1.0),
        }
        return special.get(kind) or kind("no")

    mended = {Unavailable, Unreachable, OutOfSpace, BrokenPart, Draining}
    assert {kind for kind in kinds() if is_transient(example(kind))} == mended
    assert not is_transient(OSError(errno.EACCES, "Permission denied"))
    assert not is_transient(ValueError())


def test_only_what_cannot_be_read_is_doubtful() -> None:
    assert is_doubtful(UnreadableTable(URI, "page 3 is damaged"))
    with pytest.raises(MessageError) as refused, refusing():
        raise UnreadableTable(URI, "page 3 is damaged")
    assert is_doubtful(refused.value)
    assert not is_doubtful(ColumnError(URI, "text", "no"))
    assert not is_doubtful(refusal(UnreadableTable(URI, "of nobody knows what")))


def test_a_refusal_is_as_transient_as_its_cause() -> None:
    for error, expected in ((Unavailable(URI, "busy"), True), (Forbidden(URI, "no"), False)):
        with pytest.raises(MessageError, match=URI) as refused, refusing():
            raise error
        assert refused.value.__cause__ is error
        assert is_transient(refused.value) is expected
    assert not is_transient(MessageError(ErrorCode.STORE_UNAVAILABLE, "of nobody knows what"))
