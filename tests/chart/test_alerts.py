"""The alerts: promtool accepts them, they fire where they must and nowhere else, and all they name exists."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.metric_names import existing, labels_in, labels_of, named_in
from tests.chart.rendering import CHART, case, of_kind, rendered
from tests.chart.tools import promtool

ALERTS = CHART / "files" / "alerts.yaml"
TESTS = tuple(Path(__file__).parent.glob("alerts*_test.yaml"))
EXPECTED = {
    *(
        "BatchmillOldestAgeOverObjective",
        "BatchmillBacklogAtMaxReplicas",
        "BatchmillErrorRatio",
        "BatchmillDeadLetters",
    ),
    *("BatchmillRedeliveryRatio", "BatchmillBacklogWithoutCompletions", "BatchmillExporterGone"),
    *("BatchmillNightlyNotDone", "BatchmillLabelSharesDrifting"),
}


def run_promtool(*arguments: str | Path) -> str:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def plain() -> list[dict[str, Any]]:
    return rules(yaml.safe_load(ALERTS.read_text())["groups"])


@pytest.fixture(params=["irsa", "everything"])
def groups(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What the chart puts into the PrometheusRule."""
    (document,) = of_kind(rendered(case(request.param)), "PrometheusRule")
    return document["spec"]["groups"]


def test_promtool_accepts_the_file() -> None:
    assert "SUCCESS" in run_promtool("check", "rules", ALERTS)


def test_promtool_accepts_what_the_chart_renders(groups: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}))

    assert "SUCCESS" in run_promtool("check", "rules", path)


def test_alerts_fire_where_they_must_and_nowhere_else(tmp_path: Path) -> None:
    alerts = yaml.safe_load(ALERTS.read_text())
    for rule in rules(alerts["groups"]):
        rule.pop("annotations", None)
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(alerts))
    copies = [shutil.copy(path, tmp_path) for path in TESTS]

    assert run_promtool("test", "rules", *copies).count("SUCCESS") == len(TESTS) == 2


def test_every_alert_is_seen_to_fire_and_not_to_fire(plain: list[dict[str, Any]]) -> None:
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in plain if "alert" in rule}

    assert alerts == EXPECTED
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert alerts - quiet <= {"BatchmillRedeliveryRatio"}  # one case has namespaces that fire and that do not


def test_every_alert_says_what_is_wrong_and_what_to_do(plain: list[dict[str, Any]]) -> None:
    for rule in plain:
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert len(rule["annotations"]["summary"]) > 20
            assert len(rule["annotations"]["description"]) > 40


def test_every_metric_that_a_rule_names_exists(groups: list[dict[str, Any]]) -> None:
    found = rules(groups)
    recorded = {rule["record"] for rule in found if "record" in rule} | {"batchmill:nightly_max_age_seconds"}
    named = set().union(*(named_in(rule["expr"]) for rule in found))

    assert len(named) > 10
    assert named <= existing() | recorded


def test_every_label_that_a_rule_goes_by_exists(groups: list[dict[str, Any]]) -> None:
    for rule in rules(groups):
        assert labels_in(rule["expr"]) <= labels_of(rule["expr"]), rule


def test_the_objectives_are_those_of_the_values(groups: list[dict[str, Any]]) -> None:
    promised = [rule for rule in rules(groups) if rule["expr"].startswith("vector(")]
    promises = {(rule["record"], rule["labels"].get("queue")): rule["expr"] for rule in promised}

    assert promises["batchmill:objective_seconds", "bulk"] == "vector(21600)"
    assert promises["batchmill:target_backlog_seconds", "classify"] == "vector(25)"
    assert promises["batchmill:max_workers", "classify"] in {"vector(1)", "vector(3)"}
    assert {rule["labels"]["namespace"] for rule in promised} == {"tickets"}


def test_a_night_is_expected_only_where_one_is_planned() -> None:
    def recorded(name: str) -> set[str]:
        (document,) = of_kind(rendered(case(name)), "PrometheusRule")
        return {rule["record"] for rule in rules(document["spec"]["groups"]) if "record" in rule}

    assert "batchmill:nightly_max_age_seconds" in recorded("irsa")
    assert "batchmill:nightly_max_age_seconds" not in recorded("everything")
