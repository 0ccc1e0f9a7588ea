"""The `batchmill` command: a table of commands whose modules are imported only when one runs.

`batchmill --help` thus needs neither celery nor onnxruntime and answers at once. What a command does is in
`tasks.commands`, one file per command.
"""

import importlib
from importlib.metadata import version
from types import ModuleType
from typing import Final

import click

from tasks.commands.exits import Unfit

# name: what `batchmill --help` says; `tasks/commands/NAME.py` holds the command of that name.
COMMANDS: Final = {
    "worker": "Start a worker.",
    "enqueue": "Put tickets on the queue.",
    "result": "Show the results of tasks.",
    "queues": "Show how full the queues are, and who works on them.",
    "exporter": "Publish how full the queues are, for Prometheus and autoscaling.",
    "jobs": "List, show or cancel messages by their task ids.",
    "dead": "List, show, requeue or purge dead letters.",
    "purge": "Delete results, or everything that holds a ticket.",
    "bulk": "Label whole files, or read whole folders of scans, into Parquet.",
    "classify": "Classify a file without a broker.",
    "ocr": "Read the text of images and PDFs without a broker.",
    "model": "Build or inspect models.",
    "doctor": "Check broker, model and machine.",
    "options": "Print the table of all options.",
    "schema": "Write the JSON Schemas of messages and results.",
    "simulate": "Try autoscaling policies on a day's messages, without a cluster.",
    "demo": "See it work: a broker, a worker, hundreds of tickets.",
}

EXIT_CODES: Final = """\b
Exit codes:
  0  all is well
  1  an item, a job or a bulk run failed, or is not finished
  2  wrong usage
  3  the environment is not fit: broker down, model missing, option out of range
"""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None for an unknown name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(_import(cmd_name), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"tasks.commands.{cmd_name} holds no command of that name")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, importing none."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tasks.commands.{name}")
    except ModuleNotFoundError as error:
        text = f"`batchmill {name}` needs the package {error.name}: pip install 'batchmill[build,demo]'"
        raise Unfit(text) from error


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
    if wanted:
        click.echo(f"batchmill {version('batchmill')}")
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
def main() -> None:
    """Classify tickets and read documents with ONNX models, batched across the messages of a Celery queue.

    Options come from BATCHMILL_* variables: `batchmill options` lists them.
    """


if __name__ == "__main__":
    main()
