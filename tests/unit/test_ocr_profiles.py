"""A profile's directory is checked before its networks are loaded."""

import hashlib
import json
from pathlib import Path

import pytest

from tasks.ocr.latin import is_latin
from tasks.ocr.profiles import PROFILES, SideLimits, load_profile
from worker.errors import ModelError

FILES = {
    "orientation": ("orientation.onnx", b"o"),
    "detection": ("detection.onnx", b"d"),
    "recognition": ("recognition.onnx", b"r"),
    "dictionary": ("dictionary.txt", "a\n\x85\nß".encode()),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    manifest: dict[str, object] = {"name": "ocr-accurate", "version": "1", "precision": "fp32"}
    for field, (name, content) in FILES.items():
        (tmp_path / name).write_bytes(content)
        manifest[field] = {"file": name, "sha256": hashlib.sha256(content).hexdigest()}
    (tmp_path / "model.json").write_text(json.dumps(manifest | {"least_side": 736, "most_side": 1280}))
    return tmp_path


def test_a_complete_directory_is_read(directory: Path) -> None:
    profile = load_profile(directory)
    assert profile.detection == directory / "detection.onnx"
    assert profile.limits == SideLimits(736, 1280)
    assert profile.dictionary == "a\n\x85\nß"


@pytest.mark.parametrize("name", [name for name, _ in FILES.values()])
def test_a_changed_file_is_refused(directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"other")
    with pytest.raises(ModelError, match=f"{name} is not the file"):
        load_profile(directory)


@pytest.mark.parametrize("name", [name for name, _ in FILES.values()])
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        load_profile(directory)


def test_a_directory_without_a_manifest_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="batchmill model build ocr"):
        load_profile(tmp_path)


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"name": "tickets"}')
    with pytest.raises(ModelError, match="no valid manifest of an OCR model"):
        load_profile(tmp_path)


def test_each_profile_is_found_under_its_name() -> None:
    assert all(name == profile.name for name, profile in PROFILES.items())


@pytest.mark.parametrize("character", list("aZ09äöüÄÖÜß€§–éèêëçñøåæœŁłőűřžșț£™°²½„“»…"))
def test_european_text_is_latin(character: str) -> None:
    assert is_latin(character)


@pytest.mark.parametrize("character", list("中あ한жαא（😀"))  # noqa: RUF001 - a full-width bracket is meant
def test_other_scripts_are_not(character: str) -> None:
    assert not is_latin(character)
