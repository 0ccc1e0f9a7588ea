"""Loads what a worker needs to read documents, for messages or runs: the networks, warm, and their lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tasks.ocr.build import ocr_model_dir
from tasks.ocr.layout import Networks, layout
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.objects import DocumentObjects, longest_read_s
from tasks.ocr.pipeline import OcrPipeline
from tasks.ocr.profiles import PROFILES, load_profile
from tasks.ocr.sources import AllowedPrefix
from tasks.ocr.stages import FETCHERS, CropStage, DocumentStage, PageStage, lanes
from worker.errors import ConfigError, ModelError
from worker.jobs import Cancellation

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.ocr.profiles import ProfileDir
    from worker.lanes import Lane
    from worker.settings import Settings

_WARM_SIDE_PX: Final = 736


def load_ocr(settings: Settings) -> tuple[dict[str, Lane], OcrPipeline]:
    """Return the lanes of the stages by name, and the pipeline. Blocks while the networks load and warm.

    Raises:
        ConfigError: the model is missing or broken, or an allowed source is none.
    """
    profile = load_profile(find_profile(settings))
    networks = Networks(profile, providers=settings.providers)
    info = describe(profile, networks)
    limits = DocumentLimits()
    documents = DocumentStage(info, limits, _allowed(settings), DocumentObjects())
    _warm(networks)
    pages, lines = PageStage(info, limits, networks), CropStage(info, networks)
    made = lanes(documents, pages, lines, waits_s=longest_wait_s(limits))
    return made, OcrPipeline(profile.manifest.name, info)


def longest_wait_s(limits: DocumentLimits) -> float:
    """Return how long a document may wait for its store, and for all that are opened beside it, one after the other."""
    return longest_read_s(limits.document_bytes) + FETCHERS * limits.open_cpu_s


def find_profile(settings: Settings) -> Path:
    """Return the directory of the OCR model that the settings name: a profile's name, or a directory.

    Raises:
        ModelError: it is not built.
    """
    name = settings.ocr_model
    if name not in PROFILES:
        return settings.models_dir / name
    built = ocr_model_dir(settings.cache_dir, name)
    if built is None:
        raise ModelError(f"the OCR model {name} is not built: run `batchmill model build ocr --profile {name}`")
    return built


def describe(profile: ProfileDir, networks: Networks) -> dict[str, str]:
    """Return what `schemas.results.ModelInfo` describes."""
    manifest = profile.manifest
    return {
        "name": manifest.name,
        "version": manifest.version,
        "sha256": manifest.sha256,
        "precision": manifest.precision,
        "provider": networks.detection.provider,
        "runtime": networks.detection.runtime,
    }


def _allowed(settings: Settings) -> list[AllowedPrefix]:
    try:
        return [AllowedPrefix.parse(source) for source in settings.document_sources]
    except ValueError as error:
        raise ConfigError(f"BATCHMILL_DOCUMENT_SOURCES: {error}") from error


def _warm(networks: Networks) -> None:
    """Run each network once, on a blank page and a blank line: the first run of a shape pays for its memory."""
    layout(np.full((_WARM_SIDE_PX, _WARM_SIDE_PX, 3), 255, np.uint8), networks, Cancellation())
