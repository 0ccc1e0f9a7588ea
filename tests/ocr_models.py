"""Models for tests that are built for real, once for all tests that share a cache."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tasks.classify.build import build_default
from tasks.ocr.build import build_ocr
from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def built_ocr_model(cache_dir: Path, profile: str) -> Path:
    """Return the directory of a profile; skip the test where it cannot be downloaded, which CI must be able to."""
    return _built(partial(build_ocr, cache_dir, profile))


def built_default_model(cache_dir: Path) -> Path:
    """Return the directory of the default classifier; skip the test likewise."""
    return _built(partial(build_default, cache_dir))


def _built(build: Callable[[], Path]) -> Path:
    try:
        return build()
    except ConfigError as error:
        if "cannot download" in str(error) and not os.environ.get("CI"):
            pytest.skip(str(error))
        raise
