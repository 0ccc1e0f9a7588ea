"""`batchmill bulk`: runs over whole files, by their output or by the task id that planned them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tasks.bulk.done import note_done
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import manifest_uri
from tasks.bulk.sending import enqueue
from tasks.bulk.state import Standing
from tasks.bulk.verify import verify as verify_run
from tasks.commands.bulk_classify import classify
from tasks.commands.bulk_failures import run_reported
from tasks.commands.bulk_ocr import ocr
from tasks.commands.bulk_target import is_output, output_of, planned, run_of, stores_of_command, target_argument
from tasks.commands.bulk_view import several
from tasks.commands.bulk_watch import finish, show
from tasks.commands.bulk_watch import watch as watch_run
from tasks.commands.client import open_client
from tasks.commands.exits import exit_failed
from tasks.commands.quiet import configure_logs
from worker.ops import jobs
from worker.ops.broker import connect
from worker.ops.ends import known
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.commands.bulk_target import Run
    from worker.settings import Settings


@click.group()
def bulk() -> None:
    """Label whole files, or read whole folders of scans, with the workers of the queues `bulk` and `bulk-ocr`.

    A run is named by its OUTPUT, an s3:// address or a directory, or by the JOB_ID that was printed as it was planned.
    """


bulk.add_command(classify)
bulk.add_command(ocr)


@bulk.command()
@target_argument
@click.option("--watch", is_flag=True, help="Follow the run until it ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a look.")
@run_reported
def status(*, target: str, watch: bool, as_json: bool) -> None:
    """Show how a run stands: rows or documents and shards done, what waits or runs, which shards failed and why.

    Exit code 0 only if it is finished: the manifest and _SUCCESS stand.
    """
    with run_of(target) as run:
        if watch:
            watch_run(run, as_json=as_json)
            return
        state = run.look()
        show(state, as_json=as_json)
        finish(state)


@bulk.command()
@target_argument
@click.option("--watch", is_flag=True, help="Follow the run until it ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, others follow.")
@run_reported
def resume(*, target: str, watch: bool, as_json: bool) -> None:
    """Send the shards that are missing and neither wait nor run, or write the manifest if none is missing.

    Several at once do no harm, and neither does resuming a run that is well.
    """
    with run_of(target) as run:
        verdict = finalise(run.store, run.plan)
        note_done(run.client, run.plan.request, verdict)
        state = run.look()
        going = {one.shard for one in state.shards if one.is_open}
        sent = _send(run, [shard for shard in verdict.missing if shard not in going | state.done])
        if as_json:
            click.echo(json.dumps({"job_id": run.plan.job_id, "sent": len(sent), "open": len(going)}))
        elif verdict.missing:
            click.echo(f"{run.plan.job_id}: {len(sent)} shards sent, {len(going)} still wait or run")
        else:
            click.echo(f"{run.plan.job_id}: finished, {manifest_uri(run.plan.request.output)}")
        if watch:
            watch_run(run, as_json=as_json)


@bulk.command()
@target_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@run_reported
def cancel(*, target: str, as_json: bool) -> None:
    """Call off the shards that wait or run; parts that are there stay. `resume` takes the run up again."""
    settings = load()
    configure_logs(settings)
    if not is_output(target) and not _is_planned(settings, target):
        _call_off(settings, [target], held=[target])
        click.echo(json.dumps({"task_ids": [target]}) if as_json else f"{target}: its planning is called off")
        return
    with run_of(target) as run:
        state = run.look()
        planner = [run.plan.job_id] if state.is_planning else []
        names = planner + [one.task_id for one in state.shards if one.is_open]
        _call_off(settings, names, held=planner + [one.task_id for one in state.of(Standing.RUNNING)])
        click.echo(
            json.dumps({"job_id": run.plan.job_id, "task_ids": names})
            if as_json
            else f"{run.plan.job_id}: {len(names)} messages called off"
        )


@bulk.command()
@target_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@run_reported
def verify(*, target: str, as_json: bool) -> None:
    """Read every byte of a finished run and hold it against its manifest; print what is wrong, one thing a line.

    Exit code 1 if anything is. What has only happened around it, such as an input that was replaced, is a note.
    Needs no broker if the target is an output.
    """
    configure_logs(load())
    output = output_of(target)
    found = verify_run(stores_of_command(), output)
    if as_json:
        told = {
            "output": output,
            "problems": [str(one) for one in found.problems],
            "notes": [str(one) for one in found.notes],
        }
        click.echo(json.dumps(told))
    else:
        for problem in found.problems:
            click.echo(str(problem))
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
    if found.problems:
        exit_failed()
    if not as_json and found.manifest is not None:
        click.echo(
            f"{output}: {several(len(found.manifest.parts), 'part')}, {several(found.manifest.totals.rows, 'row')}, "
            "as the manifest says"
        )


def _send(run: Run, shards: Sequence[int]) -> list[str]:
    if not shards:
        return []
    with open_client(run.settings) as app:
        return enqueue(app, run.plan, shards)


def _is_planned(settings: Settings, task_id: str) -> bool:
    with connect(settings.broker_url, decode_responses=False) as client:
        return planned(known(client, [task_id])[task_id]) is not None


def _call_off(settings: Settings, task_ids: Sequence[str], *, held: Sequence[str]) -> None:
    if not task_ids:
        return
    with open_client(settings) as app, connect(settings.broker_url) as client:
        jobs.cancel(client, task_ids, settings.result_ttl_s)
        app.control.revoke(list(held))  # their workers would hear of it at the next renewal only
