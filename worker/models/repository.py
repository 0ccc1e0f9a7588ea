"""Finds a model and says what it is: a directory as Optimum exports it, with or without `model.json`.

All that a worker must know before it loads a graph is settled here, and anything missing, ambiguous or
contradictory is refused with the file's name and the remedy. It reads only the directory's small files and
hashes the ONNX file; it does not know onnxruntime or tokenizers, and weights that the graph keeps in a second
file are not part of the hash.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import ValidationError

from schemas.manifest import MANIFEST_FILE, ModelManifest, ProblemType
from worker.errors import ModelError
from worker.files import sha256_of

MAX_LENGTH_DEFAULT: Final = 512
# transformers writes 1e30 where a tokenizer knows no limit.
_ABSURD_LENGTH: Final = 1_000_000
# These number positions from pad_token_id + 1, so the table holds that many fewer tokens than it has rows.
_OFFSET_POSITIONS: Final = frozenset({"camembert", "roberta", "xlm-roberta", "xlm-roberta-xl"})

# A parsed JSON file; Any because its shape is what this module checks.
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelDir:
    """A model on disk, checked as far as that goes without loading it.

    Attributes:
        path: the directory.
        onnx_path: the graph.
        tokenizer_path: `tokenizer.json`.
        name: the manifest's, else the directory's name.
        version: the manifest's, else the first 12 digits of `sha256`.
        sha256: of the ONNX file, in hex.
        precision: the manifest's, else "unspecified".
        id2label: the label of each class, by index.
        problem_type: one label per ticket, or several.
        max_length: most tokens that the model reads, special tokens included.
        pad_token_id: what fills a row up.
        manifest: `model.json`, if there is one.
    """

    path: Path
    onnx_path: Path
    tokenizer_path: Path
    name: str
    version: str
    sha256: str
    precision: str
    id2label: tuple[str, ...]
    problem_type: ProblemType
    max_length: int
    pad_token_id: int
    manifest: ModelManifest | None


def resolve(ref: str, root: Path) -> ModelDir:
    """Load the model that a setting means.

    Args:
        ref: a directory, or the name of a directory below `root`; the latter wins.
        root: the models directory.

    Raises:
        ModelError: there is no such model, or it is broken.
    """
    return load_dir(locate(ref, root))


def locate(ref: str, root: Path) -> Path:
    """Return the directory that a setting means, of whatever kind the model is; see `resolve`.

    Raises:
        ModelError: there is none.
    """
    for path in (root / ref, Path(ref).expanduser()):
        if path.is_dir():
            return path
    known = sorted(child.name for child in root.iterdir() if child.is_dir()) if root.is_dir() else []
    text = (
        f"no model {ref!r}: it is neither a directory nor one of those in {root} "
        f"({', '.join(known) or 'none'}); give the path of a directory that holds model.onnx, tokenizer.json "
        "and config.json"
    )
    raise ModelError(text)


def load_dir(path: Path) -> ModelDir:
    """Read a model directory. Blocks while it hashes the ONNX file (about 1 GB/s).

    Raises:
        ModelError: a file is missing, ambiguous, not JSON, or contradicts another one.
    """
    manifest = _manifest(path / MANIFEST_FILE)
    config = _json(path / "config.json")
    tokenizer = _json(path / "tokenizer.json")
    tokenizer_config = _json(path / "tokenizer_config.json", optional=True)
    onnx_path = _onnx_path(path, manifest)
    sha256 = _sha256(onnx_path, manifest)
    pad_token_id = _pad_token_id(tokenizer, tokenizer_config, config)
    return ModelDir(
        path=path,
        onnx_path=onnx_path,
        tokenizer_path=path / "tokenizer.json",
        name=manifest.name if manifest else path.resolve().name,
        version=manifest.version if manifest else sha256[:12],
        sha256=sha256,
        precision=manifest.precision if manifest else "unspecified",
        id2label=_labels(path, manifest, config),
        problem_type=_problem_type(path, manifest, config),
        max_length=_max_length(manifest, tokenizer, tokenizer_config, config, pad_token_id),
        pad_token_id=pad_token_id,
        manifest=manifest,
    )


def _json(path: Path, *, optional: bool = False) -> Json:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        text = f"{path} is missing: export the model with its tokenizer (optimum-cli export onnx does)"
        raise ModelError(text) from None
    except (OSError, ValueError) as error:
        text = f"{path} cannot be read: {error}; copy or export it again"
        raise ModelError(text) from error
    if not isinstance(content, dict):
        text = f"{path} must hold a JSON object; export it again"
        raise ModelError(text)
    return content


def _manifest(path: Path) -> ModelManifest | None:
    if not path.exists():
        return None
    try:
        return ModelManifest.model_validate(_json(path))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        text = f"{path} is no valid manifest ({faults}): correct it, or remove it to use the files as they are"
        raise ModelError(text) from error


def _onnx_path(directory: Path, manifest: ModelManifest | None) -> Path:
    """Return the manifest's file, else `model.onnx`, else the only `*.onnx` there is."""
    if manifest is not None:
        path = directory / manifest.file
        if not path.is_file():
            text = f"{path} is missing, and {MANIFEST_FILE} names it: copy the file, or correct `file` there"
            raise ModelError(text)
        return path
    candidates = sorted(directory.glob("*.onnx"))
    exact = [path for path in candidates if path.name == "model.onnx"] or candidates
    if len(exact) == 1:
        return exact[0]
    if not exact:
        text = f"{directory} holds no .onnx file: export the model to ONNX (optimum-cli export onnx) into it"
        raise ModelError(text)
    text = (
        f"{directory} holds several models ({', '.join(path.name for path in exact)}): "
        f"name the one to serve model.onnx, or name it in {MANIFEST_FILE}"
    )
    raise ModelError(text)


def _sha256(path: Path, manifest: ModelManifest | None) -> str:
    sha256 = sha256_of(path)
    if manifest is not None and manifest.sha256 != sha256:
        text = (
            f"{path} has the sha256 {sha256}, but {MANIFEST_FILE} says {manifest.sha256}: "
            "the file was changed or copied incompletely; copy or build the model again"
        )
        raise ModelError(text)
    return sha256


def _labels(directory: Path, manifest: ModelManifest | None, config: Json) -> tuple[str, ...]:
    """Return the manifest's labels, else config.json's `id2label`; where both are there they must agree."""
    from_config = _id2label(directory / "config.json", config.get("id2label"))
    from_manifest = tuple((manifest and manifest.labels) or ())
    if from_config and from_manifest and from_config != from_manifest:
        text = f"{directory}: the labels of {MANIFEST_FILE} and of config.json differ; correct one of them"
        raise ModelError(text)
    labels = from_manifest or from_config
    if not labels:
        text = f'{directory / "config.json"} has no id2label: add one, such as {{"0": "billing", "1": "access"}}'
        raise ModelError(text)
    return labels


def _id2label(path: Path, id2label: object) -> tuple[str, ...]:
    if id2label is None:
        return ()
    fault = f'{path}: id2label must map every class from 0 up to a different label, such as {{"0": "billing"}}'
    if not isinstance(id2label, dict) or not all(isinstance(label, str) and label for label in id2label.values()):
        raise ModelError(fault)
    try:
        labels = tuple(id2label[str(index)] for index in range(len(id2label)))
    except KeyError:
        raise ModelError(fault) from None
    if len(set(labels)) != len(labels):
        raise ModelError(fault)
    return labels


def _problem_type(directory: Path, manifest: ModelManifest | None, config: Json) -> ProblemType:
    """Return what the manifest says, else config.json; Optimum leaves it out where it is single-label."""
    said = (manifest and manifest.problem_type) or config.get("problem_type")
    for known in get_args(ProblemType):
        if said == known or (said is None and known == "single_label_classification"):
            return known  # type: ignore[no-any-return]  # get_args forgets the Literal's type
    text = f"{directory / 'config.json'}: problem_type {said!r} is none of {', '.join(get_args(ProblemType))}"
    raise ModelError(text)


def _max_length(
    manifest: ModelManifest | None, tokenizer: Json, tokenizer_config: Json, config: Json, pad_token_id: int
) -> int:
    """Return the first limit that is given and sane: manifest, truncation, tokenizer, position table."""
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= pad_token_id + 1
    candidates = (
        manifest.max_length if manifest else None,
        (tokenizer.get("truncation") or {}).get("max_length"),
        tokenizer_config.get("model_max_length"),
        positions,
    )
    for tokens in candidates:
        if isinstance(tokens, int | float) and 0 < tokens <= _ABSURD_LENGTH:
            return int(tokens)
    return MAX_LENGTH_DEFAULT


def _pad_token_id(tokenizer: Json, tokenizer_config: Json, config: Json) -> int:
    """Return the id that the model was trained to see as padding: some graphs derive positions from it."""
    padding = tokenizer.get("padding")
    if padding:
        return int(padding["pad_id"])
    pad_token = tokenizer_config.get("pad_token")
    content = pad_token.get("content") if isinstance(pad_token, dict) else pad_token
    for token in tokenizer.get("added_tokens") or ():
        if content is not None and token["content"] == content:
            return int(token["id"])
    return int(config.get("pad_token_id") or 0)
