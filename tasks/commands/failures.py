"""How a command ends badly: every expected error becomes one line on standard error and an exit code."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import click
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from schemas.errors import MessageError
from tasks.commands.exits import Unfit
from worker.errors import BatchmillError

P = ParamSpec("P")


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
