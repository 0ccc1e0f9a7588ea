"""The schemas of what the chart renders: Kubernetes' own, by version, and those of custom resources. All are closed."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZipFile

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from worker.convert.wheels import PinnedWheel, fetch
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.chart.rendering import Document

KUBERNETES: Final = ("1.33", "1.35", "1.37")
OWN_CRDS: Final = Path(__file__).parent / "crds"
# Made from Kubernetes' OpenAPI documents; the strict ones allow no field that is not there.
_SCHEMAS: Final = PinnedWheel(
    "kubernetes-validate==1.37.0",
    "kubernetes_validate-1.37.0-py3-none-any.whl",
    "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
)
_DEFINITIONS: Final = "_definitions.json"
_BASE: Final = "https://kubernetes.io/api/"


def crd_folders() -> list[Path]:
    """Return the folders with CRDs to check against: the project's, and what CRD_DIR names."""
    return [OWN_CRDS, *(Path(folder) for folder in [os.environ.get("CRD_DIR")] if folder)]


def first_error(document: Document, validator: Draft202012Validator | None) -> str | None:
    """Return the first thing that is wrong with a document; that nothing knows its kind is wrong, too."""
    if validator is None:
        return f"unknown kind {document['apiVersion']} {document['kind']}"
    for error in validator.iter_errors(document):
        return f"{error.json_path}: {error.message[:300]}"
    return None


def validator_of(document: Document, version: str, crds: Path) -> Draft202012Validator | None:
    """Return what checks a document of its kind; None if neither Kubernetes nor a CRD knows it."""
    group, _, api_version = document["apiVersion"].rpartition("/")
    key = (group, api_version, document["kind"])
    if "." in group and not group.endswith(".k8s.io"):
        schema = custom(crds).get(key)
        return Draft202012Validator(schema) if schema else None
    return _kubernetes(version, *key)


@cache
def custom(folder: Path) -> Mapping[tuple[str, str, str], dict[str, Any]]:
    """Return the schemas of the CRDs in a folder, closed, by group, version and kind."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            found[spec["group"], version["name"], spec["names"]["kind"]] = schema
    return found


def closed(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema in which an object has no properties but those that are named. Metadata is Kubernetes' own."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: closed(part) for name, part in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema:
        result["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


@cache
def _kubernetes(version: str, group: str, api_version: str, kind: str) -> Draft202012Validator | None:
    short = group.removesuffix(".k8s.io").split(".")[0]
    name = "-".join(part for part in (kind, short, api_version) if part).lower()
    schema = _read(version, f"{name}.json")
    if schema is None:
        return None
    definitions = _read(version, _DEFINITIONS)
    registry = Registry().with_resource(_BASE + _DEFINITIONS, DRAFT202012.create_resource(definitions))
    return Draft202012Validator(schema, registry=registry)


@cache
def _read(version: str, name: str) -> dict[str, Any] | None:
    with ZipFile(fetch(_SCHEMAS, load().cache_dir / "wheels")) as archive:
        path = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/{name}"
        return json.loads(archive.read(path)) if path in archive.namelist() else None


def kinds(folder: Path) -> Iterator[str]:
    """Yield the kinds that a folder of CRDs knows."""
    for _, _, kind in custom(folder):
        yield kind
