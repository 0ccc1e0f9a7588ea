"""Which run a command is about: an output, or the task id of what planned it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from celery import states
from pydantic import ValidationError

from schemas.bulk import BulkAnswer
from schemas.errors import MessageError
from tasks.bulk.coordinator import load_plan
from tasks.bulk.layout import normalised, plan_uri
from tasks.bulk.state import look
from tasks.bulk.stores import Stores
from tasks.commands.bulk_failures import ending
from tasks.commands.exits import Failed
from tasks.commands.quiet import configure_logs
from worker.ops.broker import connect
from worker.ops.ends import known
from worker.settings import load
from worker.storage.objects import PATIENCE_S, store_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.state import RunState
    from worker.ops.ends import Known
    from worker.settings import Settings
    from worker.storage.objects import ObjectStore

target_argument = click.argument("target", metavar="OUTPUT|JOB_ID")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is planned.

    Attributes:
        settings: of this process.
        client: of the database; returns bytes.
        store: where the output is.
        plan: the run's.
    """

    settings: Settings
    client: redis.Redis
    store: ObjectStore
    plan: BulkPlan

    def look(self) -> RunState:
        """Return how it stands; see `tasks.bulk.state.look`."""
        return look(self.store, self.plan, self.client)


def stores_of_command() -> Stores:
    """Return the stores of a command: one that cannot be reached is given up within seconds, for somebody waits."""
    return Stores(partial(store_for, unreachable_s=PATIENCE_S))


@contextmanager
def opened(settings: Settings, client: redis.Redis, output: str) -> Iterator[Run]:
    """Open the run below an output, for a block.

    Raises:
        MessageError: `plan_missing`, or the store refuses or fails.
    """
    store = stores_of_command().of(output)
    yield Run(settings, client, store, load_plan(store, plan_uri(output)))


@contextmanager
def run_of(target: str) -> Iterator[Run]:
    """Open the run that a target means, for a block.

    Raises:
        MessageError: as `opened`.
        click.ClickException: the target means no run that is planned.
    """
    settings = load()
    configure_logs(settings)
    with (
        connect(settings.broker_url, decode_responses=False) as client,
        opened(settings, client, output_of(target, client)) as run,
    ):
        yield run


def is_output(target: str) -> bool:
    """Whether a target is an address or a path, and no task id."""
    return "/" in target or Path(target).is_dir()


def output_of(target: str, client: redis.Redis | None = None) -> str:
    """Return the output that a target means; blocks on the database only if the target is a task id.

    Raises:
        click.ClickException: it means none: no such task, or one that has not planned its run.
    """
    if is_output(target):
        return normalised(target)
    if client is None:
        with connect(load().broker_url, decode_responses=False) as asked:
            return output_of(target, asked)
    answer = planned(known(client, [target])[target])
    if answer is None:
        text = (
            f"{target}: no directory here, and no task that has planned a run; if it waits for a worker, look again "
            "later, else give the run's output"
        )
        raise Failed(text)
    return answer.output


def planned(task: Known) -> BulkAnswer | None:
    """Return what the task that plans a run answered; None = it has not yet.

    Raises:
        click.ClickException: it failed, was called off, or is another task.
    """
    if task.status == states.SUCCESS:
        try:
            return BulkAnswer.model_validate(task.result)
        except ValidationError:
            raise Failed(
                "this task planned no bulk run; give the task id of a bulk.classify or bulk.ocr, or an output"
            ) from None
    if task.status == states.FAILURE:
        raise ending(MessageError(task.error or "internal: it failed"))
    if task.is_cancelled or task.status == states.REVOKED:
        raise Failed("the run was called off before it was planned")
    return None
