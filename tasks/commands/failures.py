"""How a command ends badly: every expected error becomes one line on standard error and an exit code.

The codes are part of the command line's contract: see docs/cli.md.
"""

import functools
from collections.abc import Callable
from typing import Final, NoReturn, ParamSpec

import click
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from schemas.errors import MessageError
from worker.errors import BatchmillError

EXIT_FAILED: Final = 1
EXIT_UNFIT: Final = 3

P = ParamSpec("P")


class Unfit(click.ClickException):
    """The environment does not allow the command to run; exit code 3."""

    exit_code = EXIT_UNFIT


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn expected errors of a command into a message and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except MessageError as error:
            raise click.UsageError(str(error)) from error
        except BatchmillError as error:
            raise Unfit(str(error)) from error
        except (OperationalError, RedisError) as error:
            raise Unfit(f"the broker does not answer: {error}; `batchmill doctor` says more") from error

    return run


def exit_failed() -> NoReturn:
    """End the command with the code for a failed item or job."""
    raise click.exceptions.Exit(EXIT_FAILED)
