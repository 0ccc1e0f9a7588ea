"""`batchmill result`: what became of tasks, by their ids."""

import click

from tasks.commands import outcome
from tasks.commands.client import open_client
from tasks.commands.failures import reported
from worker.settings import load


@click.command()
@click.argument("task_ids", nargs=-1, required=True, metavar="ID...")
@click.option("--wait", is_flag=True, help="Wait until the tasks end.")
@click.option("--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a task.")
@reported
def result(*, task_ids: tuple[str, ...], wait: bool, timeout_s: float, as_json: bool) -> None:
    """Show the results of tasks: task, ticket, label, score.

    A task that is unknown, expired or not finished shows as PENDING; the exit code is then 1.
    """
    app = open_client(load())
    found = outcome.wait(app, task_ids, timeout_s) if wait else (outcome.read(app, each) for each in task_ids)
    outcome.show(found, as_json=as_json)
