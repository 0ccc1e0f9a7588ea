"""The catalogue keeps Prometheus's conventions, and its page is up to date."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tasks.cli import main
from tests.services import ROOT
from worker.metrics import CATALOGUE, Kind, Metric, metrics_table

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
PRIVATE = {"task_id", "id", "uri", "url", "file", "path", "text", "user"}

each = pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)


@each
def test_a_metric_is_named_by_prometheus_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"batchmill_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|seconds_seconds|minutes)$", metric.name)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) and label != "le" for label in metric.labels)


@each
def test_no_label_can_hold_an_id_or_a_text(metric: Metric) -> None:
    assert not PRIVATE & set(metric.labels)


@each
def test_only_histograms_have_bounds_and_those_ascend(metric: Metric) -> None:
    assert bool(metric.buckets) is (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_names_are_unique() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_the_page_has_the_table_of_the_code() -> None:
    assert metrics_table() in PAGE, "take the table from `batchmill options --metrics`"
    assert CliRunner().invoke(main, ["options", "--metrics"]).output == metrics_table()
