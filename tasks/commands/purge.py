"""`batchmill purge`: delete results, or everything that holds a ticket."""

import json
from dataclasses import asdict

import click

from tasks.commands.exits import exit_failed
from tasks.commands.failures import reported
from worker.ops.broker import connect
from worker.ops.purge import purge_results, purge_ticket
from worker.ops.queues import known_queues
from worker.settings import load


@click.command()
@click.option("--results", "prefix", metavar="PREFIX", help="Delete the results of task ids that start like this.")
@click.option("--ticket", "ticket_id", metavar="ID", help="Delete everything that holds a ticket of this id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def purge(*, prefix: str | None, ticket_id: str | None, as_json: bool) -> None:
    """Delete data from the database for good, and print how much of each kind.

    --ticket finds results, dead letters, waiting messages and unreadable entries, and deletes each as a whole, with
    the other tickets that are in it. A message that a worker holds is left to finish: the exit code is then 1, and
    the command is to be run again.
    """
    if bool(prefix) == bool(ticket_id):
        raise click.UsageError("give either --results PREFIX or --ticket ID")
    settings = load()
    with connect(settings.broker_url, decode_responses=False) as client:
        if prefix:
            counts = {"results": purge_results(client, prefix)}
        else:
            queues = known_queues(client, settings.queues)
            counts = asdict(purge_ticket(client, queues, str(ticket_id), settings.result_ttl_s))
    click.echo(json.dumps(counts) if as_json else "\n".join(f"{name}\t{count}" for name, count in counts.items()))
    if counts.get("held"):
        exit_failed()
