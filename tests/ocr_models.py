"""OCR models for tests: built for real, once for all tests that share a cache."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tasks.ocr.build import build_ocr
from worker.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def built_ocr_model(cache_dir: Path, profile: str) -> Path:
    """Return the directory of a profile; skip the test where it cannot be downloaded, which CI must be able to."""
    try:
        return build_ocr(cache_dir, profile)
    except ConfigError as error:
        if "cannot download" in str(error) and not os.environ.get("CI"):
            pytest.skip(str(error))
        raise
