"""Kubernetes, KEDA and the Prometheus operator would accept what the chart renders, to the last field."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from tests.chart.rendering import case, named, of_kind, rendered
from tests.chart.schemas import KUBERNETES, OWN_CRDS, crd_folders, first_error, kinds, validator_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("crds", crd_folders(), ids=lambda path: path.parent.name)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_document_is_valid(documents: list[dict], version: str, crds: Path) -> None:
    errors = {
        f"{document['kind']} {document['metadata']['name']}": error
        for document in documents
        if (error := first_error(document, validator_of(document, version, crds)))
    }

    assert documents
    assert not errors


@pytest.mark.parametrize("version", KUBERNETES)
def test_an_unknown_kind_is_an_error(version: str) -> None:
    document = {"apiVersion": "apps/v1", "kind": "Deploymint", "metadata": {"name": "x"}}
    custom = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}

    assert first_error(document, validator_of(document, version, OWN_CRDS)) == "unknown kind apps/v1 Deploymint"
    assert first_error(custom, validator_of(custom, version, OWN_CRDS)) == "unknown kind example.com/v1 Thing"


@pytest.mark.parametrize("version", KUBERNETES)
def test_an_unknown_field_is_an_error_deep_in_a_pod(version: str) -> None:
    deployment = copy.deepcopy(named(rendered(case("minimal")), "Deployment", "prod-batchmill-classify"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["prot"] = 1

    error = first_error(deployment, validator_of(deployment, version, OWN_CRDS))

    assert error is not None
    assert "'prot' was unexpected" in error


@pytest.mark.parametrize("crds", crd_folders(), ids=lambda path: path.parent.name)
def test_an_unknown_field_of_a_custom_resource_is_an_error(crds: Path) -> None:
    scaled = copy.deepcopy(of_kind(rendered(case("keda")), "ScaledObject")[0])
    scaled["spec"]["advanced"]["scalingModifiers"]["formular"] = "x"

    error = first_error(scaled, validator_of(scaled, KUBERNETES[-1], crds))

    assert error is not None
    assert "'formular' was unexpected" in error


@pytest.mark.parametrize("crds", crd_folders(), ids=lambda path: path.parent.name)
def test_every_custom_resource_that_the_chart_knows_is_rendered_by_a_case(crds: Path) -> None:
    documents = [*rendered(case("keda")), *rendered(case("everything"))]

    assert set(kinds(crds)) <= {document["kind"] for document in documents}
