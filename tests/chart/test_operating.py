"""What the runbook and Compose say of the chart's objects, values and rules is so."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.chart.rendering import CHART, case, rendered, run_helm
from tests.chart.tools import HELMS, promtool
from worker.ops.scaling import DEFAULT_TARGETS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "operate.md").read_text("utf-8").replace("\\\n", " ")
NIGHTLY: Final = (
    *("--set", "nightly.enabled=true", "--set", "nightly.text=text"),
    *("--set", "nightly.inputs={s3://lake/tickets/dt=\\{date\\}/*.parquet}"),
    *("--set", "nightly.output=s3://lake/labels/\\{date\\}"),
)
SCALING: Final = (ROOT / "docs" / "scaling.md").read_text("utf-8")
RULES: Final = "/etc/prometheus/alerts.yaml"


def test_the_objects_that_the_runbook_names_exist() -> None:
    documents = [*rendered(case("keda"), release="batchmill"), *rendered(case("minimal"), "4.3", "batchmill", NIGHTLY)]
    made = {(document["kind"].lower(), document["metadata"]["name"]) for document in documents}
    named = {("deployment", name) for name in re.findall(r"deploy/([\w-]+)", PAGE)}
    named |= set(re.findall(r"\b(cronjob|scaledobject) (batchmill-[\w-]+)", PAGE))

    assert len(named) > 3
    assert named <= made


@pytest.mark.parametrize("version", HELMS)
def test_the_values_that_the_runbook_sets_are_accepted(version: str) -> None:
    lines = [line for line in PAGE.splitlines() if line.strip().startswith(("helm install", "helm upgrade"))]
    assert len(lines) > 1
    for line in lines:
        words = shlex.split(line.replace('"$FILES_SHA256"', "0" * 64))
        flags = [part for pair in pairwise(words) if pair[0] == "--set" for part in pair]
        done = run_helm(version, "template", "batchmill", str(CHART), "--values", str(case("minimal")), *flags)
        assert done.returncode == 0, done.stderr


def test_the_targets_are_the_same_everywhere() -> None:
    targets = {name: f"{seconds:g}" for name, seconds in asdict(DEFAULT_TARGETS).items()}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["queueDefaults"]["scaling"]
    rows = {
        row[0].partition(",")[0]: row[1:3]
        for row in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|", SCALING, re.MULTILINE)
    }

    assert str(defaults["targetBacklogSeconds"]) == targets["target_s"]
    assert str(defaults["bulkTargetBacklogSeconds"]) == targets["bulk_target_s"]
    assert rows["target"] == (targets["target_s"],) * 2
    assert rows["bulk target"] == (targets["bulk_target_s"],) * 2
    assert f"(`scaling.targetBacklogSeconds`, {targets['target_s']})" in PAGE
    assert f"(`scaling.bulkTargetBacklogSeconds`, {targets['bulk_target_s']})" in PAGE


def test_what_scaling_md_says_to_set_is_what_the_chart_sets() -> None:
    autoscaling = yaml.safe_load((CHART / "values.yaml").read_text())["autoscaling"]
    up, down, keda = (autoscaling[part] for part in ("scaleUp", "scaleDown", "keda"))

    assert f"| HPA up | {up['percent']} % or {up['pods']} pods in 15 s, no window |" in SCALING
    assert up["stabilizationSeconds"] == 0
    assert f"| HPA down | {down['percent']} % in 15 s, window {down['stabilizationSeconds']} s |" in SCALING
    polling, cooldown = keda["pollingIntervalSeconds"], keda["cooldownSeconds"]
    assert f"| KEDA | polling {polling} s, cooldown {cooldown} s, activation 0 |" in SCALING


def test_composes_prometheus_reads_its_configuration_and_the_charts_rules(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    content = compose["configs"]["prometheus"]["content"]
    assert RULES in content
    rules = (ROOT / "docker" / compose["configs"]["alerts"]["file"]).resolve()
    (tmp_path / "prometheus.yml").write_text(content.replace(RULES, str(rules)))

    done = subprocess.run(
        [promtool(), "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
