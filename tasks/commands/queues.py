"""`batchmill queues`: how full the queues are, and who works on them."""

from dataclasses import asdict

import click

from tasks.commands.failures import reported
from tasks.commands.view import Grid, View, age, show
from worker.ops.broker import connect
from worker.ops.queues import QueueState, Survey, WorkerState, survey
from worker.settings import load


@click.command()
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a look.")
@reported
def queues(*, watch: bool, as_json: bool) -> None:
    """Show the queues of BATCHMILL_QUEUES, and those that live workers serve.

    Waiting messages by priority (0 to 2, 3 to 5, 6 to 8, 9); the age of the oldest, `>` where a producer has not
    said when it was enqueued; messages in flight, how many of their leases are overdue, and how old the stalest is;
    dead letters; unreadable entries; and what the workers get done in a second when they are busy.
    """
    settings = load()
    with connect(settings.broker_url, decode_responses=False) as client:
        show(lambda: _view(survey(client, settings.queues, settings.lease_s)), as_json=as_json, watch=watch)


def _view(seen: Survey) -> View:
    queue_grid = Grid(
        (
            *("queue", "0-2", "3-5", "6-8", "9", "oldest s", "in flight", "overdue", "lease s"),
            *("dead", "unreadable", "items/s"),
        ),
        [_queue_row(state) for state in seen.queues],
    )
    worker_grid = Grid(
        ("worker", "seen s ago", "items/s", "in inference", "queues"), [_worker_row(state) for state in seen.workers]
    )
    return View([asdict(seen)], [queue_grid, worker_grid])


def _queue_row(state: QueueState) -> list[str]:
    return [
        state.queue,
        *map(str, state.waiting),
        _oldest(state),
        str(state.in_flight),
        str(state.overdue),
        age(state.stalest_lease_s),
        str(state.dead),
        str(state.unreadable),
        f"{state.items_per_s:.3g}",
    ]


def _oldest(state: QueueState) -> str:
    if state.oldest_age_s is None:
        return "?" if sum(state.waiting) else "-"
    return f"{'>' if state.oldest_age_is_lower_bound else ''}{age(state.oldest_age_s)}"


def _worker_row(state: WorkerState) -> list[str]:
    return [
        state.incarnation,
        age(state.silent_s),
        "-" if state.items_per_s is None else f"{state.items_per_s:.3g}",
        str(state.in_inference),
        ",".join(state.queues),
    ]
