"""The dashboard: Grafana can load it, every panel answers a question, and every metric that it asks for exists."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.chart.metric_names import existing, labels_in, labels_of, named_in
from tests.chart.rendering import CHART, case, named, rendered
from tests.chart.tools import promtool

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 24


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads((CHART / "files" / "dashboards" / "batchmill.json").read_text())


@pytest.fixture(scope="module")
def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(panels: list[dict[str, Any]]) -> list[str]:
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_it_can_be_provisioned_anywhere(dashboard: dict[str, Any], panels: list[dict[str, Any]]) -> None:
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}

    assert dashboard["uid"] == "batchmill"
    assert dashboard["schemaVersion"] >= 39
    assert dashboard["id"] is None
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for panel in panels:
        assert {part["datasource"]["uid"] for part in (panel, *panel["targets"])} == {"${datasource}"}


def test_every_panel_answers_a_question(panels: list[dict[str, Any]]) -> None:
    assert len(panels) >= 20
    for panel in panels:
        assert "?" in panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_every_metric_that_it_asks_for_exists(panels: list[dict[str, Any]]) -> None:
    recorded = {
        *("batchmill:objective_seconds", "batchmill:target_backlog_seconds", "batchmill:max_workers"),
        "batchmill:wanted_backlog_seconds",
    }
    found = set().union(*map(named_in, queries(panels)))

    assert len(found) > 25
    assert found <= existing() | recorded


def test_every_label_that_it_goes_by_exists(panels: list[dict[str, Any]]) -> None:
    for query in queries(panels):
        assert labels_in(query) <= labels_of(query), query


def test_prometheus_understands_every_query(panels: list[dict[str, Any]], tmp_path: Path) -> None:
    asked = [query.replace("$__rate_interval", "5m") for query in queries(panels)]
    rules = [{"record": f"panel:query_{number}", "expr": query} for number, query in enumerate(asked)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = subprocess.run([promtool(), "check", "rules", path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_variables_ask_for_a_metric_that_exists(dashboard: dict[str, Any]) -> None:
    for variable in dashboard["templating"]["list"][1:]:
        assert named_in(variable["definition"]) <= existing()
        assert variable["allValue"] == ".*"  # also what has no such label, as without Kubernetes


def test_every_query_keeps_to_the_chosen_namespace(panels: list[dict[str, Any]]) -> None:
    assert all('namespace=~"$namespace"' in query for query in queries(panels))


def test_panels_lie_side_by_side(dashboard: dict[str, Any]) -> None:
    cells = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

        assert place["x"] + place["w"] <= WIDTH
        assert cells.isdisjoint(own), panel["title"]
        cells |= own
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_chart_hands_it_to_grafana_s_sidecar() -> None:
    config = named(rendered(case("everything")), "ConfigMap", "prod-batchmill-dashboard")

    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"grafana_folder": "Queues"}
    assert json.loads(config["data"]["batchmill.json"])["uid"] == "batchmill"
