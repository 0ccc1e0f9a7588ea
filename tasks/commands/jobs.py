"""`batchmill jobs`: where messages are, by their task ids, and how to call them off."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

import click

from tasks.commands import payload, view
from tasks.commands.client import open_client
from tasks.commands.exits import exit_failed
from tasks.commands.failures import reported
from worker.ops import jobs as places
from worker.ops.broker import connect
from worker.ops.queues import known_queues
from worker.settings import load

_HEADER: Final = ("task", "place", "queue", "list", "enqueued", "worker", "crashes", "lease s", "bytes")


@click.group()
def jobs() -> None:
    """Messages by their task ids."""


@jobs.command("list")
@click.option("--state", type=click.Choice(["held", "waiting", "all"]), default="all", show_default=True)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Messages of each queue and state."
)
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a message.")
@reported
def list_jobs(*, state: str, limit: int, watch: bool, as_json: bool) -> None:
    """List the messages that workers hold, then those that wait, the next to be served first."""
    settings = load()
    with connect(settings.broker_url, decode_responses=False) as client:
        queues = known_queues(client, settings.queues)

        def look() -> view.View:
            found: list[places.HeldJob | places.WaitingJob] = []
            for queue in queues:
                found += places.held(client, queue, limit) if state != "waiting" else ()
                found += places.waiting(client, queue, limit) if state != "held" else ()
            return _view(found)

        view.show(look, as_json=as_json, watch=watch)


@jobs.command("show")
@click.argument("task_id", metavar="ID")
@click.option("--with-payload", is_flag=True, help="Print the tickets too, if the message is still there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def show_job(*, task_id: str, with_payload: bool, as_json: bool) -> None:
    """Show where a message is and what is known of it: waiting, held, dead, ended or unknown.

    Exit code 1 if the id is unknown: it never was here, or its result has expired. `batchmill result` shows results.
    """
    settings = load()
    with connect(settings.broker_url, decode_responses=False) as client:
        report, message = places.show(client, known_queues(client, settings.queues), task_id)
    record = {
        "task_id": task_id,
        "place": report.place,
        **(asdict(report.where) if report.where is not None else {}),
        "status": report.status,
        "result_bytes": report.result_bytes,
        "result_expires_s": report.result_expires_s,
        "cancelled": report.cancelled,
        **payload.facts(message),
    }
    if with_payload and message is not None:
        record["payload"] = payload.payload(message)
    payload.show({name: value for name, value in record.items() if value is not None}, as_json=as_json)
    if report.place == "unknown":
        exit_failed()


@jobs.command()
@click.argument("task_ids", nargs=-1, required=True, metavar="ID...")
@reported
def cancel(*, task_ids: tuple[str, ...]) -> None:
    """Call messages off, wherever they are; their tasks end as REVOKED.

    It is remembered for BATCHMILL_RESULT_TTL_S, over restarts of workers and database. A message in inference ends as
    revoked after it; one that has ended keeps its result.
    """
    settings = load()
    with open_client(settings) as app, connect(settings.broker_url) as client:
        places.cancel(client, task_ids, settings.result_ttl_s)
        app.control.revoke(list(task_ids))  # so that a worker that holds it already hears too
    click.echo("\n".join(f"{task_id}\tcancelled" for task_id in task_ids))


def _view(found: Iterable[places.HeldJob | places.WaitingJob]) -> view.View:
    found = list(found)
    records = [{"place": "held" if isinstance(one, places.HeldJob) else "waiting", **asdict(one)} for one in found]
    return view.View(records, [view.Grid(_HEADER, [_row(one) for one in found])])


def _row(one: places.HeldJob | places.WaitingJob) -> Sequence[str]:
    list_key = one.list_key.encode("unicode_escape").decode()
    if isinstance(one, places.HeldJob):
        last = ("-", one.worker, str(one.crashes), view.age(one.lease_age_s), str(one.message_bytes))
        return one.task_id, "held", one.queue, list_key, *last
    last = (view.moment(one.enqueued_at_s), "-", "-", "-", str(one.message_bytes))
    return one.task_id, "waiting", one.queue, list_key, *last
