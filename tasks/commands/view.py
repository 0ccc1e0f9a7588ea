"""How the commands that look into the database show it: tables for people, tabs for pipes, JSON for programs.

A view may be watched: it is then looked at again every second until Ctrl-C.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

EVERY_S: Final = 1.0
SHORT: Final = 16  # characters of a cell that is never broken


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_lines(self) -> str:
        """Return header and rows, their cells separated by tabs."""
        return "\n".join("\t".join(row) for row in (self.header, *self.rows))

    def as_table(self) -> Table:
        """Return it for a terminal: headers break between words only, and what is too long goes on below."""
        table = Table(box=None, pad_edge=False, collapse_padding=True)
        for at, name in enumerate(self.header):
            longest = max(len(text) for text in (name, *(row[at] for row in self.rows)))
            table.add_column(name, overflow="fold", no_wrap=longest <= SHORT and " " not in name)
        for row in self.rows:
            table.add_row(*row)
        return table


@dataclass(frozen=True, slots=True)
class View:
    """What was seen: `records` for programs, one a line, and grids for people."""

    records: Sequence[Mapping[str, object]]
    grids: Sequence[Grid]


def show(look: Callable[[], View], *, as_json: bool, watch: bool = False) -> None:
    """Print what `look` returns, once or every `EVERY_S` seconds. Blocks until Ctrl-C if watched."""
    if not watch:
        _print(look(), as_json=as_json)
        return
    try:
        _watch(look, as_json=as_json)
    except KeyboardInterrupt:
        return


def age(seconds: float | None) -> str:
    """Return seconds as a cell: `-` for None."""
    return "-" if seconds is None else f"{seconds:.1f}"


def moment(unix_s: float | None) -> str:
    """Return a time as a cell, in UTC: `-` for None."""
    return "-" if unix_s is None else datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def _watch(look: Callable[[], View], *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        while True:
            _print(look(), as_json=as_json)
            time.sleep(EVERY_S)
    with Live(_rendered(look()), console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(EVERY_S)
            live.update(_rendered(look()), refresh=True)


def _print(view: View, *, as_json: bool) -> None:
    if as_json:
        for record in view.records:
            click.echo(json.dumps(record))
    elif sys.stdout.isatty():
        Console().print(_rendered(view))
    else:
        click.echo("\n\n".join(grid.as_lines() for grid in view.grids))


def _rendered(view: View) -> Group:
    return Group(*(part for grid in view.grids for part in (grid.as_table(), "")))
