"""`batchmill model`: build a model, fetch one from a store, show what a reference stands for."""

import json
import re
from pathlib import Path
from typing import Final

import click
from pydantic import ValidationError

from schemas.manifest import MANIFEST_FILE
from schemas.ocr_manifest import OcrManifest
from tasks.app import find_model
from tasks.classify.build import build_default
from tasks.commands.failures import reported
from tasks.ocr.build import build_ocr
from tasks.ocr.profiles import PROFILES, ProfileDir, load_profile
from worker.models.fetch import fetch as fetch_model
from worker.models.fetch import files_sha256
from worker.models.repository import ModelDir, load_dir, locate
from worker.settings import Settings, load

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@click.group()
def model() -> None:
    """Build, fetch or inspect models."""


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


def _sha256(_: click.Context, __: click.Parameter, value: str) -> str:
    if not _SHA256.fullmatch(value.lower()):
        raise click.BadParameter("a SHA-256 has 64 hexadecimal digits")
    return value.lower()


@model.command()
@click.argument("uri", metavar="URI")
@click.option("--sha256", required=True, callback=_sha256, help="Of all its files: files_sha256 of `model show`.")
@click.option("--to", required=True, type=click.Path(path_type=Path, file_okay=False), help="The directory to make.")
@reported
def fetch(*, uri: str, sha256: str, to: Path) -> None:
    """Fetch a model's directory from S3 (or a path) and print where it lies.

    URI is the directory that holds the model's files, such as s3://models/tickets/2026-05-01/. The directory given
    by --to appears at once and whole, and only if names and contents of all files have the SHA-256 that was given and
    make a model. If it is there already, it is checked, and nothing is fetched. Where the model is uploaded from,
    `batchmill model show` prints its files_sha256.
    """
    click.echo(fetch_model(uri, sha256, to, _load, progress=_say))


def _say(step: str) -> None:
    click.echo(step, err=True)


@model.command()
@click.argument("reference", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def show(*, reference: str | None, as_json: bool) -> None:
    """Show the model that REFERENCE (`default`, a name, a directory) stands for, without loading it."""
    facts = _facts(_find(load(model=reference)))
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        click.echo(f"{name:<14}{', '.join(value) if isinstance(value, list) else value}")


def _find(settings: Settings) -> ModelDir | ProfileDir:
    if settings.model == "default":
        return find_model(settings)
    return _load(locate(settings.model, settings.models_dir))


def _load(directory: Path) -> ModelDir | ProfileDir:
    """Read a model's directory, whichever kind it is of. Raises `ModelError`."""
    return load_profile(directory) if _is_ocr(directory / MANIFEST_FILE) else load_dir(directory)


def _is_ocr(manifest: Path) -> bool:
    try:
        OcrManifest.model_validate_json(manifest.read_bytes())
    except (FileNotFoundError, ValidationError):
        return False
    return True


def _facts(found: ModelDir | ProfileDir) -> dict[str, object]:
    files = {"directory": str(found.path), "files_sha256": files_sha256(found.path)}
    return files | (_of_ocr(found) if isinstance(found, ProfileDir) else _of_tickets(found))


def _of_ocr(found: ProfileDir) -> dict[str, object]:
    manifest = found.manifest
    return {
        "name": manifest.name,
        "version": manifest.version,
        "sha256": manifest.sha256,
        "precision": manifest.precision,
        "licence": manifest.licence or "not stated",
    }


def _of_tickets(found: ModelDir) -> dict[str, object]:
    manifest = found.manifest
    return {
        "name": found.name,
        "version": found.version,
        "sha256": found.sha256,
        "precision": found.precision,
        "max_length": found.max_length,
        "problem": found.problem_type,
        "labels": list(found.id2label),
        "licence": (manifest.licence if manifest else None) or "not stated",
    }
