"""Curves are read at a cost, not at a lucky point."""

from __future__ import annotations

import pytest

from worker.ops.simulation.outcome import Outcome
from worker.ops.simulation.sweep import Point, best_within, late_at, spaced


def point(pod_hours: float, late: int) -> Point:
    outcome = Outcome(1000, late, late / 1000, 0.0, 0.0, 0.0, pod_hours, 0, 1, 0, 0, 0)
    return Point("test", 1.0, outcome)


def test_the_best_is_the_fewest_late_that_is_affordable() -> None:
    points = [point(12.0, 1), point(10.0, 30), point(9.0, 20), point(8.0, 90)]

    assert best_within(points, 10.5) == points[2]
    assert best_within(points, 5.0) == points[3]


def test_a_curve_is_a_line_through_what_is_near() -> None:
    halving = [point(9.0 + step / 4, round(512 / 2**step)) for step in range(9)]

    assert late_at(halving, 9.6) == pytest.approx(512 / 2**2.4, rel=0.05)
    assert late_at([*halving, point(9.6, 4)], 9.6) > 50, "a lucky one does not count alone"


def test_between_far_points_and_beyond_them() -> None:
    points = [point(10.0, 100), point(20.0, 1)]

    assert late_at(points, 15.0) == pytest.approx(10.0)
    assert late_at(points, 5.0) == pytest.approx(100.0)
    assert late_at([point(10.0, 0)], 10.0) == 0.5


def test_targets_are_spaced_evenly_by_factor() -> None:
    assert spaced(1.0, 100.0, 3) == (1.0, 10.0, 100.0)
