"""`batchmill enqueue`: tickets from a shell to the queue, one message each."""

import json
import sys
from collections.abc import Iterator
from typing import IO

import click

from schemas.messages import parse_classify
from tasks.commands import outcome, tickets
from tasks.commands.client import open_client, send
from tasks.commands.failures import reported
from worker.settings import load


@click.command()
@click.argument("texts", nargs=-1, metavar="[TEXT]... | -")
@click.option("--jsonl", type=click.File(encoding="utf-8", errors="surrogateescape"), help="A file of tickets.")
@click.option("--subject", help="Subject of one ticket; its text is --body.")
@click.option("--body", help="Body of one ticket.")
@click.option("--model", help="The model to ask; the worker's own by default.")
@click.option("--top-k", type=click.IntRange(1, 100), help="How many labels to return, best first.")
@click.option("--priority", type=click.IntRange(0, 9), help="0-2 interactive (default), 3-5 normal, 6-9 bulk.")
@click.option("--wait", is_flag=True, help="Wait for the results and print them.")
@click.option("--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a task.")
@reported
def enqueue(  # noqa: PLR0913 - a flag each
    *,
    texts: tuple[str, ...],
    jsonl: IO[str] | None,
    subject: str | None,
    body: str | None,
    model: str | None,
    top_k: int | None,
    priority: int | None,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Put tickets on the queue and print their task ids.

    A ticket is a TEXT, a line of standard input (-), a line of a JSONL file ({"id": …, "text": …} or
    {"id": …, "subject": …, "body": …}), or --subject and --body. Each travels in a message of its own.
    """
    flags: tuple[tuple[str, object], ...] = (("model", model), ("top_k", top_k))
    options = {name: value for name, value in flags if value is not None}
    messages = [_checked({"tickets": [ticket]} | options) for ticket in _read(texts, jsonl, subject, body)]
    app = open_client(load())
    sent = []
    for message in messages:
        sent.append(send(app, message, priority))
        if not wait:
            click.echo(json.dumps({"task_id": sent[-1]}) if as_json else sent[-1])
    if wait:
        outcome.show(outcome.wait(app, sent, timeout_s), as_json=as_json)


def _checked(message: dict[str, object]) -> dict[str, object]:
    """Return the message if the contract allows it, so that nothing is sent of a file with one mistake."""
    parse_classify((), message)
    return message


def _read(
    texts: tuple[str, ...], jsonl: IO[str] | None, subject: str | None, body: str | None
) -> Iterator[dict[str, object]]:
    parts = {name: text for name, text in (("subject", subject), ("body", body)) if text is not None}
    if bool(texts) + bool(jsonl) + bool(parts) != 1:
        raise click.UsageError("give tickets in one way: TEXT, -, --jsonl FILE, or --subject and --body")
    if jsonl is not None:
        return tickets.from_json_lines(jsonl)
    if texts == ("-",):
        return tickets.from_lines(sys.stdin)
    if texts:
        return tickets.from_texts(texts)
    return iter([{"id": "1", **parts}])
