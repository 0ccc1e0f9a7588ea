"""One outcome for every row, whatever fails: a failing batch is bisected until the culprit stands alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog

from schemas.errors import ErrorCode, MessageError
from worker.errors import BatchTimeout, Draining, ItemFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = structlog.get_logger(__name__)

Row = TypeVar("Row")


def isolate(rows: Sequence[Row], run: Callable[[Sequence[Row]], Sequence[object]]) -> list[object]:
    """Run `rows` together; where that fails, run the halves, down to single rows.

    A batch with one culprit costs about 2·log2(rows) further calls.

    Returns:
        What `run` returned for each row, or `ItemFailed` for each row that fails alone.

    Raises:
        Draining: `run` did; that says nothing about its rows.
    """
    try:
        outcomes = list(run(rows))
        if len(outcomes) != len(rows):
            raise _WrongCountError(len(outcomes), len(rows))  # noqa: TRY301 - a wrong count is isolated like any failure
    except Draining:
        raise
    except BaseException as exc:  # noqa: BLE001 - makes the outcome; Rust panics and MemoryError must end a row, not a thread
        log.warning("batch.failed", rows=len(rows), error=type(exc).__name__, where=_where(exc))
        if len(rows) == 1:
            return [failure(exc)]
        middle = len(rows) // 2
        return isolate(rows[:middle], run) + isolate(rows[middle:], run)
    return outcomes


def failure(exc: BaseException) -> ItemFailed:
    """Return the outcome of an item that `exc` ended.

    The text names the error's type, never its message: that may quote the input.
    """
    match exc:
        case ItemFailed():
            return exc.bare()
        case MemoryError():
            return ItemFailed(
                ErrorCode.OUT_OF_MEMORY, "not enough memory for this item; shorten it or enlarge the worker"
            )
        case BatchTimeout():
            return ItemFailed(ErrorCode.INFERENCE_TIMEOUT, f"the model did not answer within {exc.limit_s:g} s")
        case _:
            return ItemFailed(
                ErrorCode.INFERENCE_FAILED, f"{type(exc).__name__} at {_where(exc)}; see the worker's log"
            )


def message_failure(exc: BaseException) -> MessageError:
    """Return the failure of a message that `exc` ended as a whole; its text says as little as that of `failure`."""
    match exc:
        case MessageError():
            return exc
        case MemoryError():
            return MessageError(
                ErrorCode.OUT_OF_MEMORY, "not enough memory for this message; send fewer tickets in one"
            )
        case _:
            return MessageError(ErrorCode.INTERNAL, f"{type(exc).__name__} at {_where(exc)}")


class _WrongCountError(Exception):
    """The model returned another number of outputs than it got rows."""


def _where(exc: BaseException) -> str:
    """Return `file:line` of the frame that raised."""
    traceback = exc.__traceback__
    if traceback is None:
        return "unknown"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}"
