"""`batchmill model`: build a model, show what a reference stands for."""

import json

import click

from tasks.app import find_model
from tasks.classify.build import build_default
from tasks.commands.failures import reported
from tasks.ocr.build import build_ocr
from tasks.ocr.profiles import PROFILES
from worker.models.repository import ModelDir
from worker.settings import load


@click.group()
def model() -> None:
    """Build or inspect models."""


@model.command()
@click.argument("kind", type=click.Choice(["tickets", "ocr"]), default="tickets")
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Of an OCR model; accurate if left out.")
@reported
def build(*, kind: str, profile: str | None) -> None:
    """Build a model into the cache directory and print where it lies.

    KIND tickets, which is the default, is the default model for tickets: it downloads pinned weights once (about
    90 MB), fits the head on this project's own tickets and quantises. It needs the packages of
    `pip install batchmill[build]`.

    KIND ocr is one of the OCR profiles: accurate (FP32, all scripts), latin (FP32, Latin script), fast (the same in
    INT8) and tiny (smaller networks that read worse). It downloads 34 MB once (tiny: 82 MB) and needs
    `pip install batchmill[build,ocr]`.

    A finished model is found again by its hash.
    """
    if kind == "ocr":
        path = build_ocr(load().cache_dir, profile or "accurate", progress=_say)
    elif profile is not None:
        raise click.UsageError("--profile belongs to an OCR model: batchmill model build ocr --profile ...")
    else:
        path = build_default(load().cache_dir, progress=_say)
    click.echo(path)


def _say(step: str) -> None:
    click.echo(step, err=True)


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
