"""What the commands that begin a bulk run have in common: their flags, sending the request, waiting for its plan."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from schemas.bulk import Compression
from tasks.bulk.layout import normalised, plan_uri
from tasks.bulk.sending import queue_of
from tasks.commands import view
from tasks.commands.bulk_target import opened, planned
from tasks.commands.bulk_view import facts
from tasks.commands.bulk_watch import watch as watch_run
from tasks.commands.client import open_client, send_bulk
from tasks.commands.exits import Failed, Unfit, exit_failed
from tasks.commands.quiet import configure_logs
from worker.ops.broker import connect
from worker.ops.ends import known
from worker.ops.queues import survey
from worker.settings import load
from worker.storage.errors import StorageError, Unreachable
from worker.storage.objects import PATIENCE_S, local_path, scheme_of
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from schemas.bulk import BulkAnswer
    from schemas.bulk_plan import BulkRequest
    from worker.settings import Settings

POLL_EVERY_S: Final = 0.2
LONG_S: Final = 10.0  # after which a person wonders
_LOOK: Final = Limits(connect_s=PATIENCE_S, read_s=PATIENCE_S, total_s=PATIENCE_S, unreachable_s=PATIENCE_S, attempts=1)
EXIT_CODES: Final = """\b
Exit codes:
  0  planned; with --watch: finished
  1  the run failed, was called off or is not finished
  2  wrong usage; nothing was sent
  3  no broker, no worker or no model, or the store refuses
"""

_PART_OPTIONS: Final = (
    click.option("--column-prefix", help="Before the names of the result columns."),
    click.option("--compression", type=click.Choice(get_args(Compression)), help="Of the parts; zstd by default."),
    click.option("--row-group-rows", type=int, help="Most rows of a row group."),
    click.option("--shard-rows", type=int, help="Most rows or documents for a part; by default a minute's work."),
    click.option("--max-rejection-rate", type=float, help="Share of rows that may have an error; 0.5 by default."),
    click.option("--strict", is_flag=True, help="Fail if a part that was made twice differs."),
    click.option("--since-manifest", help="manifest.json of an earlier run: skip the files that it covers."),
)
_RUN_OPTIONS: Final = (
    click.option("--priority", type=click.IntRange(0, 9), help="Of the planning; shards always come last."),
    click.option(
        "--timeout", "timeout_s", type=float, default=600.0, show_default=True, help="Seconds to wait for the plan."
    ),
    click.option("--watch", is_flag=True, help="Follow the run until it ends."),
    click.option("--plan", "only_plan", is_flag=True, help="Send nothing: show files, columns, shards, time and cost."),
    click.option("--workers", type=click.IntRange(1), help="With --plan: how many machines like this one."),
    click.option("--price-per-hour", type=click.FloatRange(0), help="With --plan: the price of one of them."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line."),
)


def part_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of a request that every run has."""
    return _with(_PART_OPTIONS, command)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that `carry_out` takes."""
    return _with(_RUN_OPTIONS, command)


def carry_out(request_of: Callable[[dict[str, Any]], BulkRequest], flags: dict[str, Any]) -> None:  # Any: as flags are
    """Send a request and wait for its plan, or, with `--plan`, show what it would take.

    Args:
        request_of: makes the request of its own flags.
        flags: those and the ones that `run_options` adds, by name.

    Raises:
        click.ClickException: the flags do not fit together, or the run cannot be planned.
        MessageError, StorageError, TableError: likewise.
    """
    names = ("priority", "timeout_s", "watch", "only_plan", "workers", "price_per_hour", "as_json")
    priority, timeout_s, watch, only_plan, workers, price_per_hour, as_json = (flags.pop(name) for name in names)
    request = request_of(flags)
    if only_plan:
        if watch or priority is not None:
            raise click.UsageError("--plan sends nothing: leave --watch and --priority out")
        _estimate(request, workers or 1, price_per_hour, as_json=as_json)
        return
    if workers is not None or price_per_hour is not None:
        raise click.UsageError("--workers and --price-per-hour go with --plan")
    _send(request, priority, timeout_s, watch=watch, as_json=as_json)


def given_fields(fields: dict[str, Any]) -> dict[str, Any]:  # Any: the request's own flags
    """Return the fields that flags give, their paths absolute, as every worker is to mean them.

    Raises:
        BadLocation: an address is of a kind that nothing here reads.
    """
    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    given["inputs"] = [_absolute(uri) for uri in given["inputs"]]
    given["output"] = normalised(given["output"])
    if "since_manifest" in given:
        given["since_manifest"] = _absolute(given["since_manifest"])
    return given


def _with(
    options: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...], command: Callable[..., None]
) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def _absolute(uri: str) -> str:
    return uri if scheme_of(uri) != "file" else os.path.abspath(local_path(uri))  # noqa: PTH100 - resolves no links


def _estimate(request: BulkRequest, workers: int, price_per_hour: float | None, *, as_json: bool) -> None:
    from tasks.commands import bulk_estimate  # noqa: PLC0415 - ONNX Runtime is loaded where it is used only

    settings = load()
    configure_logs(settings)
    seen = bulk_estimate.forecast(settings, request, workers, price_per_hour)
    view.show(lambda: bulk_estimate.view_of(seen), as_json=as_json)


def _send(request: BulkRequest, priority: int | None, timeout_s: float, *, watch: bool, as_json: bool) -> None:
    settings = load()
    configure_logs(settings)
    with open_client(settings) as app, connect(settings.broker_url, decode_responses=False) as client:
        _reach_store(request, watch=watch)
        job_id = send_bulk(app, request, priority)
        try:
            answer = _await_plan(client, settings, queue_of(request), job_id, timeout_s)
        except KeyboardInterrupt:
            click.echo(f"the run is still being planned; look again with `batchmill bulk status {job_id}`", err=True)
            exit_failed()
        view.show(lambda: _view(answer, request), as_json=as_json)
        if watch:
            with opened(settings, client, answer.output) as run:
                watch_run(run, as_json=as_json)


def _reach_store(request: BulkRequest, *, watch: bool) -> None:
    """Say within seconds if no connection to the store comes about from here: a worker would try for minutes.

    Raises:
        Unreachable: the run is to be watched, which needs the store.
    """
    uris = [uri for uri in (plan_uri(request.output), *request.inputs) if scheme_of(uri) == "s3"]
    if not uris:
        return
    try:
        S3Store(_LOOK).exists(uris[0])
    except Unreachable as error:
        if watch and scheme_of(request.output) == "s3":
            raise
        click.echo(f"{error}; the request is sent, for the workers may reach it", err=True)
    except StorageError:  # it answers, if only that it is busy; what is wrong with the rest, the worker says
        return


def _await_plan(client: redis.Redis, settings: Settings, queue: str, job_id: str, timeout_s: float) -> BulkAnswer:
    """Wait for the planner's answer; say at once if nobody is there to give it.

    Raises:
        click.ClickException: planning failed, or has not ended in time.
    """
    began_s = time.monotonic()
    nobody = f"no worker serves the queue {queue}; start one: batchmill worker --queues {queue}"
    is_explained = not _is_served(client, settings, queue)
    if is_explained:
        click.echo(f"waiting: {nobody}", err=True)
    told = None
    while (answer := planned(task := known(client, [job_id])[job_id])) is None:
        if task.error not in (None, told):
            told = task.error
            click.echo(f"planning is tried again: {told}", err=True)
        waited_s = time.monotonic() - began_s
        if waited_s > LONG_S and not is_explained:
            is_explained = True
            click.echo("still being planned: inputs are listed and measured, or a store is tried again", err=True)
        if waited_s > timeout_s:
            later = f"the request stays on the queue: `batchmill bulk status {job_id}`, or `bulk cancel {job_id}`"
            if not _is_served(client, settings, queue):
                raise Unfit(f"{nobody}; {later}")
            raise Failed(f"not planned within {timeout_s:g} s; {later}")
        time.sleep(POLL_EVERY_S)
    return answer


def _is_served(client: redis.Redis, settings: Settings, queue: str) -> bool:
    workers = survey(client, (queue,), settings.lease_s).workers
    return any(queue in worker.queues and worker.silent_s < settings.lease_s for worker in workers)


def _view(answer: BulkAnswer, request: BulkRequest) -> view.View:
    record = answer.model_dump(mode="json")
    return view.View([record], [facts(record, request)])
