import hashlib
import json
from pathlib import Path

import pytest

from tests.tiny_models import LABELS, write_tiny_model
from worker.errors import ModelError
from worker.models.repository import load_dir, resolve


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "helpdesk", max_length=48)


def edit(path: Path, **changes: object) -> None:
    """Change keys of a JSON file; None removes one."""
    content = (json.loads(path.read_text()) if path.exists() else {}) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def write_manifest(directory: Path, file: str = "model.onnx", **changes: object) -> None:
    sha256 = hashlib.sha256((directory / file).read_bytes()).hexdigest()
    manifest = {"name": "tickets", "version": "7", "file": file, "sha256": sha256, "precision": "int8-rowwise"}
    edit(directory / "model.json", **(manifest | changes))


def test_a_directory_without_manifest_is_named_by_itself_and_versioned_by_its_hash(directory: Path) -> None:
    found = load_dir(directory)

    sha256 = hashlib.sha256((directory / "model.onnx").read_bytes()).hexdigest()
    assert (found.name, found.version, found.sha256) == ("helpdesk", sha256[:12], sha256)
    assert (found.onnx_path, found.tokenizer_path) == (directory / "model.onnx", directory / "tokenizer.json")
    assert found.precision == "unspecified"
    assert found.manifest is None


def test_labels_and_kind_come_from_config_json(directory: Path) -> None:
    assert load_dir(directory).id2label == LABELS
    assert load_dir(directory).problem_type == "single_label_classification"

    edit(directory / "config.json", problem_type="multi_label_classification")
    assert load_dir(directory).problem_type == "multi_label_classification"


def test_id2label_is_ordered_by_number_not_by_spelling(directory: Path) -> None:
    edit(directory / "config.json", id2label={str(i): f"label {i}" for i in reversed(range(12))})

    assert load_dir(directory).id2label == tuple(f"label {i}" for i in range(12))


def test_the_manifest_decides_over_the_files(directory: Path) -> None:
    write_manifest(directory, max_length=20, problem_type="multi_label_classification", labels=list(LABELS))

    found = load_dir(directory)

    assert (found.name, found.version, found.precision) == ("tickets", "7", "int8-rowwise")
    assert (found.max_length, found.problem_type) == (20, "multi_label_classification")
    assert found.manifest is not None


def test_the_manifest_names_the_file_among_several(directory: Path) -> None:
    (directory / "model_int8.onnx").write_bytes(b"weights")
    write_manifest(directory, file="model_int8.onnx")

    assert load_dir(directory).onnx_path == directory / "model_int8.onnx"


def test_model_onnx_goes_before_other_graphs(directory: Path) -> None:
    (directory / "decoder.onnx").write_bytes(b"weights")

    assert load_dir(directory).onnx_path == directory / "model.onnx"


def test_a_single_graph_may_have_any_name(directory: Path) -> None:
    (directory / "model.onnx").rename(directory / "model_quantized.onnx")

    assert load_dir(directory).onnx_path == directory / "model_quantized.onnx"


@pytest.mark.parametrize(
    ("manifest", "truncation", "model_max_length", "positions", "expected"),
    [
        pytest.param(20, 30, 40, 50, 20, id="manifest"),
        pytest.param(None, 30, 40, 50, 30, id="tokenizer.json truncation"),
        pytest.param(None, None, 40, 50, 40, id="model_max_length"),
        pytest.param(None, None, 1e30, 50, 50, id="absurd model_max_length"),
        pytest.param(None, None, None, 50, 50, id="positions"),
        pytest.param(None, None, None, None, 512, id="nothing said"),
    ],
)
def test_the_first_sane_limit_is_the_maximum_length(  # noqa: PLR0913, PLR0917 - the columns of the table
    directory: Path,
    manifest: int | None,
    truncation: int | None,
    model_max_length: float | None,
    positions: int | None,
    expected: int,
) -> None:
    if manifest:
        write_manifest(directory, max_length=manifest)
    edit(directory / "tokenizer.json", truncation=truncation and {"max_length": truncation})
    edit(directory / "tokenizer_config.json", model_max_length=model_max_length)
    edit(directory / "config.json", max_position_embeddings=positions)

    assert load_dir(directory).max_length == expected


def test_a_position_table_that_starts_after_the_padding_is_not_overrun(directory: Path) -> None:
    edit(directory / "config.json", model_type="xlm-roberta", max_position_embeddings=514, pad_token_id=1)
    edit(directory / "tokenizer.json", truncation=None, added_tokens=None)
    (directory / "tokenizer_config.json").unlink()

    assert load_dir(directory).max_length == 512


@pytest.mark.parametrize(
    ("padding", "pad_token", "expected"),
    [
        pytest.param({"pad_id": 3}, "[MASK]", 3, id="tokenizer.json padding"),
        pytest.param(None, "[MASK]", 4, id="pad_token by name"),
        pytest.param(None, {"content": "[SEP]", "lstrip": False}, 3, id="pad_token as an object"),
        pytest.param(None, None, 9, id="config.json"),
    ],
)
def test_the_padding_id_is_the_one_that_the_model_was_trained_with(
    directory: Path, padding: object, pad_token: object, expected: int
) -> None:
    edit(directory / "tokenizer.json", padding=padding)
    edit(directory / "tokenizer_config.json", pad_token=pad_token)
    edit(directory / "config.json", pad_token_id=9)

    assert load_dir(directory).pad_token_id == expected


def test_tokenizer_config_json_may_be_missing(directory: Path) -> None:
    (directory / "tokenizer_config.json").unlink()

    assert load_dir(directory).max_length == 48


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named_with_the_remedy(directory: Path, name: str) -> None:
    (directory / name).unlink()

    with pytest.raises(ModelError, match=f"{name} is missing: export"):
        load_dir(directory)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b""])
def test_a_file_that_is_no_json_object_is_named(directory: Path, content: bytes) -> None:
    (directory / "config.json").write_bytes(content)

    with pytest.raises(ModelError, match=r"config\.json"):
        load_dir(directory)


def test_two_graphs_without_a_manifest_are_both_named(directory: Path) -> None:
    (directory / "model.onnx").rename(directory / "fp32.onnx")
    (directory / "int8.onnx").write_bytes(b"weights")

    with pytest.raises(ModelError, match=r"fp32\.onnx, int8\.onnx.*name the one to serve model\.onnx"):
        load_dir(directory)


def test_a_directory_without_a_graph_is_refused(directory: Path) -> None:
    (directory / "model.onnx").unlink()

    with pytest.raises(ModelError, match=r"holds no \.onnx file"):
        load_dir(directory)


def test_a_graph_that_is_not_the_manifests_is_refused(directory: Path) -> None:
    write_manifest(directory)
    (directory / "model.onnx").write_bytes(b"cut short")

    with pytest.raises(ModelError, match=r"sha256.*changed or copied incompletely"):
        load_dir(directory)


def test_a_manifest_whose_graph_is_missing_is_refused(directory: Path) -> None:
    write_manifest(directory)
    (directory / "model.onnx").unlink()

    with pytest.raises(ModelError, match=r"model\.onnx is missing, and model\.json names it"):
        load_dir(directory)


def test_a_broken_manifest_names_its_fields(directory: Path) -> None:
    write_manifest(directory, precision=5, colour="red")

    with pytest.raises(ModelError, match=r"model\.json is no valid manifest \(.*precision.*colour"):
        load_dir(directory)


def test_labels_that_contradict_each_other_are_refused(directory: Path) -> None:
    write_manifest(directory, labels=["a", "b"])

    with pytest.raises(ModelError, match=r"model\.json and of config\.json differ"):
        load_dir(directory)


@pytest.mark.parametrize(
    "id2label",
    [
        pytest.param({"0": "a", "2": "c"}, id="a gap"),
        pytest.param({"a": "0", "b": "1"}, id="turned round"),
        pytest.param(["a", "b"], id="a list"),
        pytest.param({"0": "a", "1": "a"}, id="twice the same"),
        pytest.param({"0": "a", "1": None}, id="null"),
    ],
)
def test_id2label_must_name_every_class(directory: Path, id2label: object) -> None:
    edit(directory / "config.json", id2label=id2label)

    with pytest.raises(ModelError, match=r"config\.json: id2label must map every class"):
        load_dir(directory)


def test_without_labels_a_model_is_refused(directory: Path) -> None:
    edit(directory / "config.json", id2label=None)

    with pytest.raises(ModelError, match="has no id2label: add one"):
        load_dir(directory)


def test_a_regression_model_is_refused(directory: Path) -> None:
    edit(directory / "config.json", problem_type="regression")

    with pytest.raises(ModelError, match="'regression' is none of single_label_classification"):
        load_dir(directory)


def test_a_model_is_found_by_name_or_by_path(directory: Path, tmp_path: Path) -> None:
    assert resolve("helpdesk", tmp_path).path == directory
    assert resolve(str(directory), tmp_path / "elsewhere").path == directory


def test_an_unknown_model_is_refused_with_the_known_names(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"no model 'nope'.*{directory.name}"):
        resolve("nope", tmp_path)
    with pytest.raises(ModelError, match="none"):
        resolve("nope", tmp_path / "elsewhere")
