"""Both releases of Helm accept the chart and make the same of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chart.rendering import CASES, CHART, NAMESPACE, case, of_kind, rendered, run_helm
from tests.chart.tools import HELMS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("version", HELMS)
def test_helm_is_the_release_that_it_is_called(version: str) -> None:
    assert run_helm(version, "version", "--short").stdout.startswith(f"v{version}.")


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_helm_lint_finds_nothing(version: str, values: Path) -> None:
    done = run_helm(version, "lint", "--strict", str(CHART), "--namespace", NAMESPACE, "--values", str(values))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_both_releases_render_the_same(values: Path) -> None:
    assert rendered(values, HELMS[0]) == rendered(values, HELMS[1])


def test_names_are_unique_for_each_kind(documents: list[dict]) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]

    assert len(names) == len(set(names))


def test_everything_goes_into_the_namespace_of_the_release(documents: list[dict]) -> None:
    assert {document["metadata"]["namespace"] for document in documents} == {NAMESPACE}


def test_no_database_and_no_object_store_come_along(documents: list[dict]) -> None:
    components = {document["metadata"]["labels"]["app.kubernetes.io/component"] for document in documents}

    assert not of_kind(documents, "StatefulSet")
    assert components <= {"worker", "exporter", "nightly", "test", "account", "network", "monitoring"}


def test_the_notes_say_how_to_enqueue_the_first_ticket() -> None:
    # Only an installation prints them, and `template` leaves them out, so the template itself is rendered in a copy.
    done = run_helm(
        HELMS[1],
        "install",
        "prod",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--values",
        str(case("keda")),
        "--dry-run=client",
        "--disable-openapi-validation",
    )

    assert done.returncode == 0, done.stderr
    assert f"kubectl -n {NAMESPACE} exec deploy/prod-batchmill-exporter -- batchmill enqueue" in done.stdout
    assert "helm test prod" in done.stdout
