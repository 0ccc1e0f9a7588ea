"""What an HPA scales by, which Prometheus records, is the exporter's number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.chart.rendering import NAMESPACE, case, named, of_kind, rendered
from tests.chart.test_alerts import run_promtool
from worker import metrics
from worker.ops.look import BANDS
from worker.ops.scaling import Demand, Targets, backlog_s

if TYPE_CHECKING:
    from pathlib import Path

WANTED: Final = "batchmill:wanted_backlog_seconds"
TARGETS: Final = Targets(25.0, 1600.0)
"""promtool compares to the last bit: their ratio is one of 64, and rates are powers of two."""
VALUES: Final = ("--set", f"queues.classify.scaling.bulkTargetBacklogSeconds={TARGETS.bulk_target_s:.0f}")


def demand(waiting: tuple[int, int, int], load: tuple[float, float, float], in_flight: int = 0) -> Demand:
    return Demand(waiting, load, in_flight, workers=4, rate=2.0)


def series(seen: Demand, pod: str) -> list[dict[str, str]]:
    """Return what an exporter publishes of the queue `classify`, as input of promtool."""
    assert seen.rate is not None
    bands = tuple(BANDS.values())[: len(seen.waiting)]
    published = {
        metrics.QUEUE_BACKLOG.name: [messages / seen.rate for messages in seen.waiting],
        metrics.QUEUE_BUSY.name: seen.load,
    }
    return [
        {
            "series": f'{name}{{namespace="{NAMESPACE}",queue="classify",band="{band}",pod="{pod}"}}',
            "values": f"{value}x10",
        }
        for name, values in published.items()
        for band, value in zip(bands, values, strict=True)
    ]


def recorded(expression: str, inputs: list[dict[str, str]], seconds: float | None, folder: Path) -> None:
    """Let promtool hold an expression, over the rules that the chart renders, against a value; None = there is none."""
    (rule,) = of_kind(rendered(case("hpa-backlog"), extra=VALUES), "PrometheusRule")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rule["spec"]["groups"]}))
    labels = f'{WANTED}{{namespace="{NAMESPACE}",queue="classify"}}'
    samples = [] if seconds is None else [{"labels": labels, "value": seconds}]
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [{"expr": expression, "eval_time": "5m", "exp_samples": samples}],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    assert "SUCCESS" in run_promtool("test", "rules", path)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(demand((0, 0, 0), (0, 0, 0)), id="nothing"),
        pytest.param(demand((100, 60, 0), (0, 0, 0)), id="what waits"),
        pytest.param(demand((0, 0, 0), (2.5, 1.25, 0), 900), id="busy workers, whatever they hold"),
        pytest.param(demand((0, 0, 900), (0, 0, 3)), id="bulk work"),
        pytest.param(demand((7, 40, 900), (1.5, 0.25, 2), 12), id="all together"),
    ],
)
def test_prometheus_records_what_the_exporter_answers(seen: Demand, tmp_path: Path) -> None:
    fewer, less = (messages // 2 for messages in seen.waiting), (busy / 2 for busy in seen.load)
    behind = replace(seen, waiting=tuple(fewer), load=tuple(less))  # a second exporter, whose last look is older

    recorded(WANTED, [*series(seen, "a"), *series(behind, "b")], backlog_s(seen, TARGETS), tmp_path)


def test_without_the_exporter_there_is_no_number(tmp_path: Path) -> None:
    recorded(WANTED, [], None, tmp_path)


def test_what_was_just_fetched_by_idle_workers_is_left_to_the_exporter(tmp_path: Path) -> None:
    """It matters from zero alone, where an HPA never is."""
    seen = demand((0, 0, 0), (0, 0, 0), in_flight=4)

    assert backlog_s(seen, TARGETS) == 2
    recorded(WANTED, series(seen, "a"), 0.0, tmp_path)


def test_the_hpa_divides_by_the_target_that_the_rule_counted_with() -> None:
    documents = rendered(case("hpa-backlog"))
    (rule,) = of_kind(documents, "PrometheusRule")
    targets = {
        one["labels"]["queue"]: one["expr"]
        for group in rule["spec"]["groups"]
        for one in group["rules"]
        if one.get("record") == "batchmill:target_backlog_seconds"
    }

    assert set(targets) == {"classify", "bulk"}
    for queue, expression in targets.items():
        hpa = named(documents, "HorizontalPodAutoscaler", f"prod-batchmill-{queue}")
        (metric,) = (one["external"] for one in hpa["spec"]["metrics"])
        assert metric["metric"] == {"name": WANTED, "selector": {"matchLabels": {"queue": queue}}}
        assert f"vector({metric['target']['averageValue']})" == expression
