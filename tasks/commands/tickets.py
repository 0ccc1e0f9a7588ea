"""Reading tickets from what a shell has: words, lines of text, JSON lines.

It gives plain dicts in the contract's shape; whether their texts can be classified is for the worker to say,
item by item.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import click

JSON_SUFFIXES: Final = {".jsonl", ".ndjson"}


def from_texts(texts: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield a ticket per text; its id is the position, from 1."""
    for number, text in enumerate(texts, start=1):
        yield {"id": str(number), "text": text}


def from_lines(lines: IO[str]) -> Iterator[dict[str, object]]:
    """Yield a ticket per line that is not blank; its id is the line number, from 1."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield {"id": str(number), "text": line.rstrip("\n")}


def from_json_lines(lines: IO[str]) -> Iterator[dict[str, object]]:
    """Yield the JSON object of each line; one without `id` gets its line number.

    Raises:
        click.UsageError: a line is no JSON object; names the line, quotes none of it.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield {"id": str(number)} | _parse(line, number)


def from_file(lines: IO[str], *, as_json: bool | None) -> Iterator[dict[str, object]]:
    """Yield the tickets of a stream; without `as_json` the file's suffix decides."""
    if as_json is None:
        name = str(getattr(lines, "name", ""))  # a pipe may have none
        as_json = Path(name).suffix in JSON_SUFFIXES
    return from_json_lines(lines) if as_json else from_lines(lines)


def _parse(line: str, number: int) -> dict[str, object]:
    try:
        ticket = json.loads(line)
    except ValueError:
        ticket = None
    if not isinstance(ticket, dict):
        raise click.UsageError(f'line {number} is not a JSON object such as {{"id": "7", "text": "…"}}')
    return ticket
