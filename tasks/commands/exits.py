"""Exit codes of the command line; part of its contract, see docs/cli.md. Needs click only."""

from typing import Final, NoReturn

import click

EXIT_FAILED: Final = 1
EXIT_UNFIT: Final = 3


class Unfit(click.ClickException):
    """The environment does not allow the command to run; exit code 3."""

    exit_code = EXIT_UNFIT


class Failed(click.ClickException):
    """What the command is about failed, is not finished or not known; exit code 1."""

    exit_code = EXIT_FAILED


def exit_failed() -> NoReturn:
    """End the command with the code for a failed item or job."""
    raise click.exceptions.Exit(EXIT_FAILED)
