"""Values that would not work are refused, by both releases of Helm, in words that name the field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.chart.rendering import CHART, case, rendered, run_helm
from tests.chart.tools import HELMS
from worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = yaml.safe_load((Path(__file__).parent / "bad_values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# Objects that are Kubernetes' own: its schemas check them once they are rendered.
PASSED_THROUGH = {
    *("nodeAffinity", "podAffinity", "podAntiAffinity", "ipBlock", "namespaceSelector", "podSelector"),
    *("configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "csi", "ephemeral", "downwardAPI"),
}


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("bad", CORPUS, ids=lambda bad: bad["name"].replace(" ", "-"))
def test_bad_values_are_refused_by_name(bad: dict[str, Any], version: str, tmp_path: Path) -> None:
    values = tmp_path / "bad.yaml"
    values.write_text(json.dumps(bad["values"]))

    done = run_helm(version, "template", "prod", str(CHART), "--values", str(case("minimal")), "--values", str(values))

    assert done.returncode != 0
    if "remedy" in bad:
        assert bad["field"] in done.stderr
        assert bad["remedy"] in done.stderr
    else:  # the schema's words, with the place as a path
        assert re.search(rf"['/]{bad['field']}['/]", done.stderr)


@pytest.mark.parametrize("version", HELMS)
def test_a_release_whose_name_begins_with_a_digit_is_refused(version: str) -> None:
    done = run_helm(version, "template", "2nd", str(CHART), "--values", str(case("minimal")))

    assert done.returncode != 0
    assert "fullnameOverride" in done.stderr


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - any JSON
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for name, part in schema.items():
            yield from objects(part, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, part in enumerate(schema):
            yield from objects(part, f"{path}/{index}")


def test_the_schema_is_closed_everywhere() -> None:
    found = dict(objects(SCHEMA))
    opened = {path for path, schema in found.items() if schema.get("additionalProperties", True) is True}

    assert len(found) > len(PASSED_THROUGH)
    assert {path.rpartition("/")[2] for path in opened} == PASSED_THROUGH


def leaves(schema: dict[str, Any], values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield what the schema allows and the values do not show."""
    schema = SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
    for name, part in schema.get("properties", {}).items():
        if not isinstance(values, dict) or name not in values:
            yield f"{path}.{name}".removeprefix(".")
        else:
            yield from leaves(part, values[name], f"{path}.{name}")


def test_every_option_has_its_default_in_values_yaml() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    hidden = {name for name in leaves(SCHEMA, values) if not name.startswith("queueDefaults.limits.")}

    assert {name for name in hidden if name.rpartition(".")[2] not in PASSED_THROUGH} == set()


def test_every_limit_is_an_option_of_the_worker(tmp_path: Path) -> None:
    limits = SCHEMA["$defs"]["queue"]["properties"]["limits"]["properties"]
    values = tmp_path / "limits.yaml"
    given = {name: limit.get("minimum", 1) for name, limit in limits.items()}
    values.write_text(json.dumps({"queueDefaults": {"limits": given}, "broker": {"existingSecret": "a"}}))

    (deployment,) = (
        document
        for document in rendered(values)
        if document["kind"] == "Deployment" and document["metadata"]["name"].endswith("-classify")
    )
    names = {variable["name"] for variable in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    options = {name for name in names if name.startswith("BATCHMILL_")}

    assert len(options) > len(limits)
    assert options <= {f"BATCHMILL_{field.upper()}" for field in Settings.model_fields}
