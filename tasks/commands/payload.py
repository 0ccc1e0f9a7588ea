"""A message for people: what its envelope says, and its tickets only where they are asked for."""

import json
from collections.abc import Mapping
from dataclasses import asdict

import click

from worker.ops.envelopes import body, describe


def facts(message: bytes | None) -> dict[str, object]:
    """Return what the envelope says, without what it does not say; nothing of a ticket's text."""
    envelope = describe(message) if message is not None else None
    return {name: value for name, value in asdict(envelope).items() if value is not None} if envelope else {}


def payload(message: bytes) -> object:
    """Return the decoded body, tickets and all; the bytes as text if they cannot be decoded."""
    content = body(message)
    return message.decode(errors="backslashreplace") if content is None else content


def show(record: Mapping[str, object], *, as_json: bool) -> None:
    """Print one record, as JSON or as a line for each field."""
    if as_json:
        click.echo(json.dumps(record))
        return
    width = max(map(len, record))
    for name, value in record.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
        click.echo(f"{name:<{width}}  {text}")
