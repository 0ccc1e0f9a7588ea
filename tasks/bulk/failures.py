"""What a failure of a bulk run means: whether to try again, and what its task says when it gives up.

Every leaf of the trees in `worker.errors` and `worker.storage.errors` stands in one table here. It decides; it retries
nothing and logs nothing.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from schemas.errors import ErrorCode, MessageError
from worker.errors import (
    BatchmillError,
    BatchTimeout,
    BrokenPart,
    Cancelled,
    ColumnError,
    ConfigError,
    Draining,
    ItemFailed,
    ModelError,
    NotBatched,
    OversizedTable,
    TableError,
    UnreadableTable,
)
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
    from collections.abc import Iterator, Mapping

CODES: Final[Mapping[type[BatchmillError], ErrorCode]] = {
    StorageError: ErrorCode.STORE_FORBIDDEN,  # refused as boto3 is configured: for the operator, like a credential
    BadLocation: ErrorCode.INVALID_MESSAGE,
    NotFound: ErrorCode.OBJECT_NOT_FOUND,
    Changed: ErrorCode.INPUT_CHANGED,
    Forbidden: ErrorCode.STORE_FORBIDDEN,
    Unavailable: ErrorCode.STORE_UNAVAILABLE,
    Unreachable: ErrorCode.STORE_UNAVAILABLE,
    NotConditional: ErrorCode.UNSUPPORTED_STORE,
    TooLarge: ErrorCode.RESULT_TOO_LARGE,
    Damaged: ErrorCode.UNREADABLE_INPUT,
    OutOfSpace: ErrorCode.OUT_OF_SPACE,
    TableError: ErrorCode.UNREADABLE_INPUT,
    UnreadableTable: ErrorCode.UNREADABLE_INPUT,
    OversizedTable: ErrorCode.UNREADABLE_INPUT,
    ColumnError: ErrorCode.SCHEMA_MISMATCH,  # or the code that it has itself
    BrokenPart: ErrorCode.INTERNAL,
    BatchmillError: ErrorCode.INTERNAL,
    ConfigError: ErrorCode.INTERNAL,
    ModelError: ErrorCode.INTERNAL,
    BatchTimeout: ErrorCode.INTERNAL,
    ItemFailed: ErrorCode.INTERNAL,  # of one row: its part says so, and the run goes on
    Draining: ErrorCode.INTERNAL,
    Cancelled: ErrorCode.INTERNAL,
    NotBatched: ErrorCode.INTERNAL,
}
"""What each failure is in the contract, for a run that ends by it."""

_TRANSIENT: Final = (Unavailable, OutOfSpace, BrokenPart, Draining)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_transient(error: BaseException) -> bool:
    """Whether the same shard may succeed later, or elsewhere: the store, the disk or the worker failed, not the data.

    An `OSError` of a full disk counts, because a part is first a file on the worker's own. A `MessageError` is as
    transient as what it was raised from.
    """
    if isinstance(error, MessageError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    return isinstance(error, _TRANSIENT) or _is_full(error)


def is_doubtful(error: BaseException) -> bool:
    """Whether the data look damaged and may not be: no store has a checksum for a range that it sends."""
    if isinstance(error, MessageError):
        return error.__cause__ is not None and is_doubtful(error.__cause__)
    return isinstance(error, UnreadableTable)


def refusal(error: BaseException) -> MessageError:
    """Return what a task fails by: `error` in the contract's words. Never quotes a row."""
    if isinstance(error, MessageError):
        return error
    if isinstance(error, TableError):
        return MessageError(error.code, str(error))
    if isinstance(error, BatchmillError):
        return MessageError(_code(type(error)), str(error))
    if _is_full(error):
        return MessageError(ErrorCode.OUT_OF_SPACE, "the worker's disk is full; free some space, then resume")
    return MessageError(ErrorCode.INTERNAL, f"{type(error).__name__}; the worker's log says where")


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what a store or a table raises inside into its `refusal`.

    Raises:
        MessageError: `from` the failure, which `is_transient` looks at.
    """
    try:
        yield
    except BatchmillError as error:
        raise refusal(error) from error


def _code(kind: type[BatchmillError]) -> ErrorCode:
    return next(CODES[base] for base in kind.__mro__ if base in CODES)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL
