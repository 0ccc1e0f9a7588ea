"""`batchmill classify`: a file of tickets through the model in this process, without a broker."""

import json
from typing import IO

import click

from tasks.commands import tickets
from tasks.commands.exits import exit_failed
from tasks.commands.failures import reported
from tasks.commands.outcome import ticket_failed, ticket_row
from tasks.commands.quiet import configure_logs
from tasks.offline import classify_offline
from worker.settings import load


@click.command()
@click.argument("file", type=click.File(encoding="utf-8", errors="surrogateescape"))
@click.option("--jsonl/--text", "jsonl", default=None, help="What a line is; by default the file's suffix says.")
@click.option("--model", help="`default`, a name below the models directory, or a directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a ticket.")
@reported
def classify(*, file: IO[str], jsonl: bool | None, model: str | None, as_json: bool) -> None:
    """Classify the lines of FILE (- = standard input): ticket, label, score.

    A line is a text, or in a .jsonl file a JSON object ({"id": …, "text": …} or {"id": …, "subject": …,
    "body": …}). No broker, no queue: one process, as on an edge device.
    """
    settings = load(model=model)
    configure_logs(settings)
    failed = False
    for ticket in classify_offline(settings, tickets.from_file(file, as_json=jsonl)):
        failed |= ticket_failed(ticket)
        click.echo(json.dumps(ticket) if as_json else ticket_row(ticket))
    if failed:
        exit_failed()
