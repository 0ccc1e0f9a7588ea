"""`batchmill dead`: what killed its workers, and what is done about it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import click
import redis

from tasks.commands import payload, view
from tasks.commands.exits import exit_failed
from tasks.commands.failures import reported
from worker.ops import dead as letters
from worker.ops.broker import connect
from worker.ops.queues import known_queues
from worker.settings import load

_ANSWERS: Final = {
    letters.Requeued.DONE: "requeued",
    letters.Requeued.MISSING: "no dead letter",
    letters.Requeued.HELD: "left: a worker holds a message of this id",
    letters.Requeued.SUCCEEDED: "left: a message of this id has succeeded since",
}


@click.group()
def dead() -> None:
    """Messages that were in inference each time when their worker died, BATCHMILL_MAX_CRASHES times."""


@dead.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Letters of each queue.")
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a letter.")
@reported
def list_letters(*, limit: int, watch: bool, as_json: bool) -> None:
    """List the dead letters, the newest first."""
    with _database() as (client, queues):
        view.show(
            lambda: _view([one for queue in queues for one in letters.newest(client, queue, limit)]),
            as_json=as_json,
            watch=watch,
        )


@dead.command("show")
@click.argument("task_id", metavar="ID")
@click.option("--with-payload", is_flag=True, help="Print the tickets too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def show_letter(*, task_id: str, with_payload: bool, as_json: bool) -> None:
    """Show one dead letter: why, when, how often, which worker, and what its envelope says."""
    with _database() as (client, queues):
        found = letters.find(client, queues, task_id)
    if found is None:
        click.echo(f"{task_id}: no dead letter", err=True)
        exit_failed()
    letter, message = found
    record = asdict(letter) | {"at": view.moment(letter.at_s)} | payload.facts(message)
    payload.show(record | ({"payload": payload.payload(message)} if with_payload else {}), as_json=as_json)


@dead.command()
@click.argument("task_ids", nargs=-1, metavar="ID...")
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a letter.")
@reported
def requeue(*, task_ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Put dead letters back to the end of their queues, as if they had never run.

    Exit code 1 if one is left where it is.
    """
    with _database() as (client, queues):
        wanted = _wanted(task_ids, every=every, everything=lambda queue: letters.ids(client, queue), queues=queues)
        answers = letters.requeue(client, queues, wanted)
    for task_id, answer in answers.items():
        record = {"task_id": task_id, "answer": answer.name.lower()}
        click.echo(json.dumps(record) if as_json else f"{task_id}\t{_ANSWERS[answer]}")
    if any(answer is not letters.Requeued.DONE for answer in answers.values()):
        exit_failed()


@dead.command()
@click.argument("task_ids", nargs=-1, metavar="ID...")
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.option("--older-than", "older_than_s", type=click.FloatRange(0), help="All that are older than so many seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def purge(*, task_ids: tuple[str, ...], every: bool, older_than_s: float | None, as_json: bool) -> None:
    """Delete dead letters for good; print how many."""
    with _database() as (client, queues):
        wanted = _wanted(
            task_ids,
            every=every or older_than_s is not None,
            everything=lambda queue: letters.ids(client, queue, older_than_s or 0.0),
            queues=queues,
        )
        purged = letters.remove(client, queues, wanted) if wanted else 0
    click.echo(json.dumps({"dead_letters": purged}) if as_json else f"{purged} dead letters deleted")


@contextmanager
def _database() -> Iterator[tuple[redis.Redis, Sequence[str]]]:
    settings = load()
    with connect(settings.broker_url, decode_responses=False) as client:
        yield client, known_queues(client, settings.queues)


def _wanted(
    task_ids: Sequence[str], *, every: bool, everything: Callable[[str], list[str]], queues: Sequence[str]
) -> list[str]:
    if bool(task_ids) == every:
        raise click.UsageError("give either ids or which letters: --all")
    return [one for queue in queues for one in everything(queue)] if every else list(task_ids)


def _view(found: Sequence[letters.DeadLetter]) -> view.View:
    rows: list[Any] = [
        (
            one.task_id,
            one.queue,
            one.reason,
            str(one.crashes),
            view.moment(one.at_s),
            one.worker,
            str(one.message_bytes),
        )
        for one in found
    ]
    header = ("task", "queue", "reason", "crashes", "at", "worker", "bytes")
    return view.View([asdict(one) for one in found], [view.Grid(header, rows)])
