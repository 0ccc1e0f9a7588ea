"""`batchmill model`: build the default model, show what a reference stands for."""

import json

import click

from tasks.app import find_model
from tasks.classify.build import build_default
from tasks.commands.failures import reported
from worker.models.repository import ModelDir
from worker.settings import load


@click.group()
def model() -> None:
    """Build or inspect models."""


@model.command()
@reported
def build() -> None:
    """Build the default model into the cache directory and print where it lies.

    Downloads pinned weights once (about 90 MB), fits the head on this project's own tickets and quantises; a
    finished model is found again by its hash. Needs the packages of `pip install batchmill[build]`.
    """
    path = build_default(load().cache_dir, progress=lambda step: click.echo(step, err=True))
    click.echo(path)


@model.command()
@click.argument("reference", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def show(*, reference: str | None, as_json: bool) -> None:
    """Show the model that REFERENCE (`default`, a name, a directory) stands for, without loading it."""
    facts = _facts(find_model(load(model=reference)))
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        click.echo(f"{name:<12}{', '.join(value) if isinstance(value, list) else value}")


def _facts(found: ModelDir) -> dict[str, object]:
    manifest = found.manifest
    return {
        "directory": str(found.path),
        "name": found.name,
        "version": found.version,
        "sha256": found.sha256,
        "precision": found.precision,
        "max_length": found.max_length,
        "problem": found.problem_type,
        "labels": list(found.id2label),
        "licence": (manifest.licence if manifest else None) or "not stated",
    }
