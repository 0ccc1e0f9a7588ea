"""Traces from files and from seeds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.names import Band
from worker.errors import ConfigError
from worker.ops.simulation.service_curve import gains_of, measured_gain
from worker.ops.simulation.traces import read_trace
from worker.ops.simulation.workloads import SCENARIOS

if TYPE_CHECKING:
    from pathlib import Path

ROWS = ({"arrival_s": 70, "service_s": 2.5}, {"arrival_s": 10, "service_s": 1, "units": 40, "priority": 7})


def _csv(folder: Path) -> Path:
    path = folder / "day.csv"
    path.write_text("arrival_s,service_s,units,priority\n70,2.5,,\n10,1,40,7\n")
    return path


def _jsonl(folder: Path) -> Path:
    path = folder / "day.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


@pytest.mark.parametrize("write", [_csv, _jsonl])
def test_a_trace_is_read_in_order_from_its_first_arrival(write, tmp_path: Path) -> None:  # noqa: ANN001 - see above
    trace = read_trace(write(tmp_path))

    assert (trace.name, len(trace)) == ("day", 2)
    assert trace.arrival_s.tolist() == [0.0, 60.0]
    assert trace.service_s.tolist() == [1.0, 2.5]
    assert trace.units.tolist() == [40.0, 1.0]
    assert trace.band.tolist() == [Band.BULK, Band.INTERACTIVE]
    assert trace.end_s == 60.0 + 1800.0


def test_without_units_every_message_is_one(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("arrival_s,service_s\n0,1\n5,100\n")

    assert read_trace(path).units.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("arrival_s\n0\n", "message 1: KeyError", id="no service"),
        pytest.param("arrival_s,service_s\n0,1\n1,soon\n", "message 2: ValueError", id="no number"),
        pytest.param("arrival_s,service_s\n0,nan\n", "not a finite number", id="not finite"),
        pytest.param("arrival_s,service_s,priority\n0,1,12\n", "between 0 and 9", id="priority"),
        pytest.param("arrival_s,service_s\n0,0\n", "above 0", id="no work"),
        pytest.param("arrival_s,service_s,units\n0,1,2.5\n", "whole", id="half a unit"),
        pytest.param("arrival_s,service_s\n", "no messages", id="empty"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said):
        read_trace(path)


@pytest.mark.parametrize("day", SCENARIOS)
def test_a_generated_day_depends_on_its_seed_alone(day: str) -> None:
    one, again, other = (SCENARIOS[day](seed).trace for seed in (5, 5, 6))

    assert one.arrival_s.tolist() == again.arrival_s.tolist()
    assert one.service_s.tolist() == again.service_s.tolist()
    assert one.arrival_s.tolist() != other.arrival_s.tolist()


@pytest.mark.parametrize("day", SCENARIOS)
def test_messages_of_a_generated_day_differ_by_orders_of_magnitude(day: str) -> None:
    trace = SCENARIOS[day](1).trace

    low, high = np.percentile(trace.service_s, (5, 99.5))
    assert high > 50 * low
    assert 1.0 < trace.offered_load() < 3.0
    assert 5_000 < len(trace) < 20_000


def test_units_tell_work_about() -> None:
    trace = SCENARIOS["nightly"](1).trace

    bulk = trace.band == Band.BULK
    assert bulk.sum() == 600
    assert np.corrcoef(trace.units[bulk], trace.service_s[bulk])[0, 1] > 0.8


def test_the_gain_of_batching_comes_from_the_benchmark(tmp_path: Path) -> None:
    runs = [
        {"who": "raw", "model": "minilm", "kind": "single", "jobs": 100, "cpu_s": 0.8},
        {"who": "batchmill", "model": "minilm", "kind": "throughput", "jobs": 1000, "cpu_s": 5.0},
        {"who": "batchmill", "model": "tiny", "kind": "throughput", "jobs": 1000, "cpu_s": 1.0},
    ]
    path = tmp_path / "queue.json"
    path.write_text(json.dumps({"runs": runs}))

    assert measured_gain(path) == pytest.approx(1.6)
    assert gains_of(1.6) == ((1, 1.0), (8, 1.3), (32, 1.6))
    with pytest.raises(ConfigError, match="make bench BENCH=queue"):
        measured_gain(path, "other")
    with pytest.raises(ConfigError, match="make bench BENCH=queue"):
        measured_gain(tmp_path / "absent.json")
