"""The profiles in which OCR comes, and a profile's directory on disk.

Why it exists: accuracy and speed are a choice, and everything that follows from it (which weights, which characters,
how large a page may be for detection, which precision) is stated here once. A directory is checked as far as that goes
without loading a network. This module knows neither onnxruntime nor how a profile is built.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from schemas.ocr_manifest import MANIFEST_FILE, ModelFile, OcrManifest
from worker.errors import ModelError
from worker.files import sha256_of

Size = Literal["small", "tiny"]
Precision = Literal["fp32", "int8-static"]


@dataclass(frozen=True, slots=True)
class SideLimits:
    """To what a page is resized for detection, in pixels.

    Attributes:
        least: the shorter side is enlarged to this.
        most: the longer side is shrunk to this.
    """

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile is made of.

    Attributes:
        name: as it is asked for.
        size: of the PP-OCRv6 networks.
        latin: whether recognition knows the Latin script only, which it reads faster.
        limits: to what a page is resized for detection.
        precision: of detection and recognition.
        least_parity: share of rendered lines that must read as with the networks as they came.
    """

    name: str
    size: Size
    latin: bool
    limits: SideLimits
    precision: Precision
    least_parity: float


_LARGE: Final = SideLimits(least=736, most=2016)
_PAGE: Final = SideLimits(least=736, most=1280)

# `latin` is what `fast` is before it is quantised: it shows what that costs.
PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("accurate", "small", latin=False, limits=_LARGE, precision="fp32", least_parity=1.0),
        Profile("latin", "small", latin=True, limits=_PAGE, precision="fp32", least_parity=0.97),
        Profile("fast", "small", latin=True, limits=_PAGE, precision="int8-static", least_parity=0.90),
        Profile("tiny", "tiny", latin=True, limits=_PAGE, precision="fp32", least_parity=0.97),
    )
}


@dataclass(frozen=True, slots=True)
class ProfileDir:
    """A profile on disk.

    Attributes:
        path: the directory.
        manifest: what it says about itself.
        orientation: the ONNX file.
        detection: likewise.
        recognition: likewise.
        dictionary: the characters by class, separated by line feeds.
        limits: to what a page is resized for detection.
    """

    path: Path
    manifest: OcrManifest
    orientation: Path
    detection: Path
    recognition: Path
    dictionary: str
    limits: SideLimits


def load_profile(path: Path) -> ProfileDir:
    """Read a profile's directory. Blocks while its files are hashed, some 50 ms.

    Raises:
        ModelError: a file is missing, or not what the manifest says.
    """
    manifest = _manifest(path / MANIFEST_FILE)
    orientation, detection, recognition, dictionary = (
        _checked(path, file)
        for file in (manifest.orientation, manifest.detection, manifest.recognition, manifest.dictionary)
    )
    return ProfileDir(
        path=path,
        manifest=manifest,
        orientation=orientation,
        detection=detection,
        recognition=recognition,
        dictionary=dictionary.read_bytes().decode(),  # as bytes: reading text would change line ends in it
        limits=SideLimits(manifest.least_side, manifest.most_side),
    )


def _manifest(path: Path) -> OcrManifest:
    try:
        return OcrManifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        text = f"{path} is missing: build an OCR model (batchmill model build ocr) and give its directory"
        raise ModelError(text) from None
    except (OSError, ValidationError) as error:
        raise ModelError(f"{path} is no valid manifest of an OCR model: {error}; build the model again") from error


def _checked(directory: Path, file: ModelFile) -> Path:
    path = directory / file.file
    if not path.is_file():
        raise ModelError(f"{path} is missing, and {MANIFEST_FILE} names it: copy or build the model again")
    if sha256_of(path) != file.sha256:
        raise ModelError(f"{path} is not the file that {MANIFEST_FILE} names: copy or build the model again")
    return path
