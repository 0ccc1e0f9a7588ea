"""Renders the chart with a real Helm and finds things in what comes out."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.chart.tools import helm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHART: Final = Path(__file__).parents[2] / "helm"
CASES: Final = (*sorted((CHART / "ci").glob("*.yaml")), CHART / "values-dev.yaml")
NAMESPACE: Final = "tickets"
_POD_OWNERS: Final = ("Deployment", "CronJob", "Pod")

Document = dict[str, Any]


def run_helm(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm; the caller looks at its exit code."""
    return subprocess.run([helm(version), *arguments], capture_output=True, text=True, timeout=60, check=False)


@cache
def rendered(values: Path, version: str = "4.3", release: str = "prod", extra: Sequence[str] = ()) -> list[Document]:
    """Return the documents that the chart makes of a file of values; `extra` are more flags of `helm template`."""
    command = ["template", release, str(CHART), "--namespace", NAMESPACE, "--values", str(values), *extra]
    done = run_helm(version, *command)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def case(name: str) -> Path:
    """Return one of the files in helm/ci."""
    return CHART / "ci" / f"{name}.yaml"


def of_kind(documents: Sequence[Document], kind: str) -> list[Document]:
    """Return the documents of a kind."""
    return [document for document in documents if document["kind"] == kind]


def named(documents: Sequence[Document], kind: str, name: str) -> Document:
    """Return the one document of a kind and name."""
    (found,) = (document for document in of_kind(documents, kind) if document["metadata"]["name"] == name)
    return found


def pod_templates(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Yield the name of whatever makes pods, and the pod's metadata and spec."""
    for document in documents:
        if document["kind"] in _POD_OWNERS:
            template = document
            while "containers" not in template["spec"]:
                template = template["spec"].get("jobTemplate") or template["spec"]["template"]
            yield document["metadata"]["name"], template


def containers(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Yield pod/container and the container, init containers too."""
    for owner, template in pod_templates(documents):
        spec = template["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            yield f"{owner}/{container['name']}", container


def workers(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Yield each queue and its Deployment."""
    for document in of_kind(documents, "Deployment"):
        if queue := document["metadata"]["labels"].get("batchmill/queue"):
            yield queue, document


def env(container: Document) -> dict[str, str]:
    """Return a container's literal variables."""
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
