"""Watching a bulk run: a bar in a terminal, else lines, until it has ended or nothing of it goes on.

Both go to standard error, for the answer is on standard output; as JSON each change is an answer. Watching changes
nothing: whoever stops it leaves the run as it is.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tasks.bulk.layout import normalised
from tasks.bulk.state import Phase
from tasks.commands import view
from tasks.commands.bulk_view import BAD, counted, record, sentence, view_of
from tasks.commands.exits import exit_failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tasks.bulk.state import RunState
    from tasks.commands.bulk_target import Run

EVERY_S: Final = 1.0
LOOKS_SHARE: Final = 0.1  # of the time is spent on looking, for a run of many shards
LINE_EVERY_S: Final = 10.0


def watch(run: Run, *, as_json: bool) -> None:
    """Follow a run, then show how it stands; end the command with code 1 unless it is finished. Blocks.

    Ctrl-C ends the watching only.
    """
    try:
        state = follow(run.look, display(as_json=as_json))
    except KeyboardInterrupt:
        output = normalised(run.plan.request.output)
        click.echo(f"the run goes on; look again with `batchmill bulk status {output} --watch`", err=True)
        exit_failed()
    if not as_json:
        show(state, as_json=False)
    finish(state)


def show(state: RunState, *, as_json: bool) -> None:
    """Print how a run stands."""
    view.show(lambda: view_of(state), as_json=as_json)


def finish(state: RunState) -> None:
    """Say on standard error how a run has ended; end the command with code 1 unless it is finished."""
    click.echo(sentence(state), err=True)
    if state.phase is not Phase.FINISHED:
        exit_failed()


class Display(Protocol):
    """Shows a run while it goes on; a block around its use ends it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def show(self, state: RunState) -> None:
        """Show how the run stands now."""


class Pace:
    """How fast a run goes on, since it is watched.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def rows_per_s(self, state: RunState) -> float | None:
        """Return rows/s between the first call and this; None as long as no row was done meanwhile."""
        now_s, rows = self._clock(), state.rows_done
        first_s, first_rows = self._first = self._first or (now_s, rows)
        return (rows - first_rows) / (now_s - first_s) if rows > first_rows and now_s > first_s else None

    def words(self, state: RunState) -> str:
        """Return speed, time left and what failed."""
        rate = self.rows_per_s(state)
        left = "-" if rate is None else str(timedelta(seconds=round((state.plan.rows - state.rows_done) / rate)))
        speed = "-" if rate is None else f"{rate:,.0f}"
        return f"{speed} {counted(state.plan.request)}/s, ETA {left}, {len(state.of(*BAD))} shards failed"


class Lines:
    """A line on standard error whenever rows were done, at most every `LINE_EVERY_S`; as JSON, one for each change."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._pace = Pace()
        self._shown: dict[str, Any] | None = None
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        del kind, error, at

    def show(self, state: RunState) -> None:
        """Print a line if there is news."""
        seen, words, now_s = record(state), self._pace.words(state), time.monotonic()
        first = self._shown is None
        if seen == self._shown or not (first or self._as_json or now_s - self._shown_s >= LINE_EVERY_S):
            return
        self._shown, self._shown_s = seen, now_s
        if self._as_json:
            click.echo(json.dumps(seen))
        else:
            click.echo(f"{progress(state)}, {words}", err=True)


class Bar:
    """A bar in a terminal, on standard error."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.fields[done]}"), BarColumn(), TextColumn("{task.fields[words]}"))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar = self._progress.add_task("run", done="", words="")
        self._pace = Pace()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, state: RunState) -> None:
        """Move the bar."""
        self._progress.update(
            self._bar,
            completed=state.rows_done,
            total=max(state.plan.rows, 1),
            done=progress(state),
            words=self._pace.words(state),
        )


def progress(state: RunState) -> str:
    """Return how much of a run is done."""
    return f"{state.rows_done:,} of {state.plan.rows:,} {counted(state.plan.request)}"


def display(*, as_json: bool) -> Display:
    """Return what fits standard error."""
    return Bar() if sys.stderr.isatty() and not as_json else Lines(as_json=as_json)


def follow(look: Callable[[], RunState], shown: Display, sleep: Callable[[float], None] = time.sleep) -> RunState:
    """Show a run until it has ended or nothing of it goes on; return how it stands then. Blocks.

    That nothing goes on is believed at the second look: the first may have come between two steps of a worker.
    """
    stands = False
    with shown:
        while True:
            began_s = time.monotonic()
            state = look()
            shown.show(state)
            if state.phase is Phase.FINISHED or (stands and state.phase is not Phase.RUNNING):
                return state
            stands = state.phase is not Phase.RUNNING
            sleep(max(EVERY_S, (time.monotonic() - began_s) / LOOKS_SHARE))
