"""`batchmill doctor`: what is not fit, and how to mend it."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import click

from tasks.app import load_workload
from tasks.commands.exits import EXIT_UNFIT
from tasks.commands.failures import reported
from tasks.commands.quiet import configure_logs
from worker.jobs import Model
from worker.ops.doctor import examine
from worker.ops.findings import Finding, Status
from worker.settings import Settings, load

_COLOURS: Final = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def doctor(*, as_json: bool) -> None:
    """Check Python, packages, CPUs, broker and model, each with the way to mend it.

    Exit code 3 if a check fails; a warning does not count.
    """
    settings = load()
    configure_logs(settings)
    findings = examine(settings, lambda: _only_model(settings))
    failed = _print_json(findings) if as_json else _print_lines(findings)
    if failed:
        raise click.exceptions.Exit(EXIT_UNFIT)


def _only_model(settings: Settings) -> Model:
    (model,) = load_workload(settings).models.values()
    return model


def _print_json(findings: Iterable[Finding]) -> bool:
    seen = list(findings)
    failed = _any_failed(seen)
    click.echo(json.dumps({"fit": not failed, "findings": [each.as_dict() for each in seen]}, indent=2))
    return failed


def _print_lines(findings: Iterator[Finding]) -> bool:
    """Print each finding as it is made: the broker may take seconds to not answer."""
    seen = []
    for each in findings:
        seen.append(each)
        mark = click.style(f"{each.status:<4}", fg=_COLOURS[each.status])
        click.echo(f"{mark}  {each.name}: {each.text}")
        if each.remedy:
            click.echo(f"      → {each.remedy}")
    return _any_failed(seen)


def _any_failed(findings: Iterable[Finding]) -> bool:
    return any(each.status is Status.FAIL for each in findings)
