"""Places in object stores: files, SeaweedFS and Ceph RGW."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores import Place, s3_place
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["local", "seaweed", "rgw"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "local":
        return Place(LocalStore(), str(tmp_path / "store"))
    return s3_place(request.getfixturevalue(request.param), monkeypatch)


@pytest.fixture(params=["seaweed", "rgw"])
def remote_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    return s3_place(request.getfixturevalue(request.param), monkeypatch)
