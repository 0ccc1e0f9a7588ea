"""How a command about bulk runs ends badly: one line on standard error, and the exit code that a CronJob acts on."""

import functools
from collections.abc import Callable
from typing import Final, ParamSpec

import click

from schemas.errors import ErrorCode, MessageError
from tasks.bulk.failures import refusal
from tasks.commands.exits import Failed, Unfit
from tasks.commands.failures import reported
from worker.errors import TableError
from worker.storage.errors import StorageError

P = ParamSpec("P")

_WRONG: Final = frozenset({ErrorCode.INVALID_MESSAGE, ErrorCode.UNKNOWN_FIELD})
_UNFIT: Final = frozenset(
    {
        ErrorCode.STORE_FORBIDDEN,
        ErrorCode.STORE_UNAVAILABLE,
        ErrorCode.UNSUPPORTED_STORE,
        ErrorCode.OUT_OF_SPACE,
        ErrorCode.UNKNOWN_TASK,
    }
)


def run_reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn expected errors into a message and an exit code: 2 a wrong request, 3 an unfit environment, else 1."""

    @reported
    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (MessageError, StorageError, TableError) as error:
            raise ending(refusal(error)) from error

    return run


def ending(failure: MessageError) -> click.ClickException:
    """Return what ends a command whose run fails so."""
    if failure.code in _WRONG:
        return click.UsageError(str(failure))
    return Unfit(str(failure)) if failure.code in _UNFIT else Failed(str(failure))
