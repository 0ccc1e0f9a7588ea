"""Directories for files on their way: they end with their block, and with their process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from worker.scratch import PREFIX, SETTLED_S, scratch

if TYPE_CHECKING:
    from pathlib import Path

HOLD = "import sys; from worker.scratch import scratch\nwith scratch() as path: print(path, flush=True); input()"


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def age(path: Path) -> None:
    then_s = path.stat().st_mtime - SETTLED_S - 1
    os.utime(path, (then_s, then_s))


def test_a_directory_ends_with_its_block(parent: Path) -> None:
    with scratch() as path:
        (path / "part").write_bytes(b"x")
        assert path.parent == parent
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed_and_what_a_living_one_holds_is_not(parent: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (held,) = parent.iterdir()
        (held / "part").write_bytes(b"x")
        age(held)
        with scratch():
            assert held.exists()
        holder.kill()
        holder.wait()

    with scratch():
        assert not held.exists()


def test_a_directory_that_is_young_or_not_ours_stays(parent: Path) -> None:
    young, foreign = parent / f"{PREFIX}young", parent / "foreign"
    young.mkdir()
    foreign.mkdir()
    age(foreign)
    with scratch():
        assert young.exists()
        assert foreign.exists()


def test_a_link_under_such_a_name_is_not_followed(parent: Path) -> None:
    (parent / "foreign").mkdir()
    (parent / "foreign" / "part").write_bytes(b"x")
    age(parent / "foreign")
    (parent / f"{PREFIX}link").symlink_to(parent / "foreign")
    with scratch():
        assert (parent / "foreign" / "part").exists()
