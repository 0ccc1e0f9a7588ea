"""A model directory travels through a store: what comes out is what was uploaded, or nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from schemas.manifest import MANIFEST_FILE
from tasks.cli import main
from worker.models.fetch import files_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.stores import Place

FILES = ("model.onnx", "tokenizer.json", "config.json", "tokenizer_config.json")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def fetch(uri: str, sha256: str, to: Path) -> Result:
    return run("model", "fetch", uri, "--sha256", sha256, "--to", str(to))


def upload(place: Place, model: Path, changed: Mapping[str, bytes] = MappingProxyType({})) -> str:
    """Store the files of a model, some of them `changed`; return the directory's address."""
    for path in model.iterdir():
        place.put(f"tickets/7/{path.name}", changed.get(path.name, path.read_bytes()))
    return f"{place.prefix}/tickets/7/"


def left_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name != ".lock"]


def test_a_fetched_model_is_the_one_that_was_uploaded(place: Place, tiny_model: Path, tmp_path: Path) -> None:
    shown = json.loads(run("model", "show", str(tiny_model), "--json").stdout)

    done = fetch(upload(place, tiny_model), shown["files_sha256"], tmp_path / "models" / "tickets")

    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'models' / 'tickets'}\n"), done.stderr
    fetched = json.loads(run("model", "show", str(tmp_path / "models" / "tickets"), "--json").stdout)
    assert fetched["sha256"] == shown["sha256"]
    assert fetched["files_sha256"] == shown["files_sha256"]
    assert left_in(tmp_path / "models") == ["tickets"]


def test_a_second_run_checks_what_is_there_and_asks_the_store_nothing(
    place: Place, tiny_model: Path, tmp_path: Path
) -> None:
    uri, sha256 = upload(place, tiny_model), files_sha256(tiny_model)
    assert fetch(uri, sha256, tmp_path / "tickets").exit_code == 0
    for path in tiny_model.iterdir():
        place.store.delete(f"{uri}{path.name}")

    again = fetch(uri, sha256, tmp_path / "tickets")

    assert again.exit_code == 0
    assert "Fetching" not in again.stderr


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_in_any_file_leaves_nothing(place: Place, tiny_model: Path, tmp_path: Path, name: str) -> None:
    flipped = bytearray((tiny_model / name).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    uri = upload(place, tiny_model, {name: bytes(flipped)})

    done = fetch(uri, files_sha256(tiny_model), tmp_path / "models" / "tickets")

    assert done.exit_code == 3
    assert "they were changed or stored incompletely; upload them again" in done.stderr
    assert left_in(tmp_path / "models") == []


def test_a_missing_and_an_additional_file_are_noticed(place: Place, tiny_model: Path, tmp_path: Path) -> None:
    uri, sha256 = upload(place, tiny_model), files_sha256(tiny_model)
    place.put("tickets/7/added_tokens.json", b"{}")

    assert fetch(uri, sha256, tmp_path / "tickets").exit_code == 3

    place.store.delete(f"{uri}added_tokens.json")
    assert fetch(uri, sha256, tmp_path / "tickets").exit_code == 0
    place.store.delete(f"{uri}tokenizer_config.json")
    assert fetch(uri, sha256, tmp_path / "other").exit_code == 3


def test_other_files_that_are_there_are_left_alone(place: Place, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / "model.onnx").write_bytes(b"in use")

    done = fetch(upload(place, tiny_model), files_sha256(tiny_model), tmp_path / "tickets")

    assert done.exit_code == 3
    assert "give each version a directory of its own" in done.stderr
    assert (tmp_path / "tickets" / "model.onnx").read_bytes() == b"in use"


def test_the_hash_of_the_graph_alone_is_recognised(place: Place, tiny_model: Path, tmp_path: Path) -> None:
    graph = hashlib.sha256((tiny_model / "model.onnx").read_bytes()).hexdigest()

    done = fetch(upload(place, tiny_model), graph, tmp_path / "tickets")

    assert done.exit_code == 3
    assert "is the sha256 of model.onnx alone" in done.stderr
    assert files_sha256(tiny_model) in done.stderr


def test_files_that_make_no_model_do_not_appear(place: Place, tiny_model: Path, tmp_path: Path) -> None:
    halved = tmp_path / "halved"
    halved.mkdir()
    (halved / "model.onnx").write_bytes((tiny_model / "model.onnx").read_bytes())

    done = fetch(upload(place, halved), files_sha256(halved), tmp_path / "models" / "tickets")

    assert done.exit_code == 3
    assert "config.json is missing" in done.stderr
    assert left_in(tmp_path / "models") == []


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ((), "there are no files"),
        (("a/model.onnx", "b/model.onnx"), "give the directory of one model"),
        (("model\tonnx",), "other characters"),
    ],
    ids=["nothing", "several models", "a name with a tab"],
)
def test_what_is_not_one_directory_of_files_is_refused(
    place: Place, tmp_path: Path, names: tuple[str, ...], remedy: str
) -> None:
    for name in names:
        place.put(f"models/{name}")

    done = fetch(f"{place.prefix}/models/", "0" * 64, tmp_path / "tickets")

    assert done.exit_code == 3
    assert remedy in done.stderr
    assert not (tmp_path / "tickets").exists()


def test_of_four_pods_that_fetch_into_one_volume_all_find_the_model(
    place: Place, tiny_model: Path, tmp_path: Path
) -> None:
    uri, sha256 = upload(place, tiny_model), files_sha256(tiny_model)
    command = ["model", "fetch", uri, "--sha256", sha256, "--to", str(tmp_path / "models" / "tickets")]

    with ThreadPoolExecutor(4) as threads:
        ends = list(threads.map(lambda _: main.main(command, standalone_mode=False), range(4)))

    assert ends == [None] * 4
    assert files_sha256(tmp_path / "models" / "tickets") == sha256
    assert left_in(tmp_path / "models") == ["tickets"]


def test_an_ocr_model_is_fetched_and_shown_as_well(place: Place, tmp_path: Path) -> None:
    model = ocr_model_of_nonsense(tmp_path / "nonsense")

    done = fetch(upload(place, model), files_sha256(model), tmp_path / "read")

    assert done.exit_code == 0, done.stderr
    assert json.loads(run("model", "show", str(tmp_path / "read"), "--json").stdout)["name"] == "ocr-nonsense"


def test_the_hash_is_what_standard_tools_print(tiny_model: Path) -> None:
    command = "sha256sum * | LC_ALL=C sort -k2 | sha256sum"
    printed = subprocess.run(["/bin/sh", "-c", command], cwd=tiny_model, capture_output=True, text=True, check=True)

    assert printed.stdout.split()[0] == files_sha256(tiny_model)


def test_a_hash_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = fetch("s3://models/tickets/", "latest", tmp_path / "tickets")

    assert done.exit_code == 2
    assert "64 hexadecimal digits" in done.stderr


def ocr_model_of_nonsense(directory: Path) -> Path:
    """A directory with the manifest of an OCR model, whose files hold no networks."""
    directory.mkdir()
    files = {}
    for part in ("orientation", "detection", "recognition", "dictionary"):
        (directory / part).write_bytes(part.encode())
        files[part] = {"file": part, "sha256": hashlib.sha256(part.encode()).hexdigest()}
    manifest = {"name": "ocr-nonsense", "version": "1", "least_side": 32, "most_side": 64, "precision": "fp32"}
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest | files))
    return directory
