"""The promise of docs/scaling.md, on its three seeded days."""

from __future__ import annotations

import pytest

from worker.ops.simulation.study import Terms, compare
from worker.ops.simulation.workloads import SCENARIOS

SEED = 1


@pytest.mark.parametrize("day", SCENARIOS)
def test_backlog_seconds_leave_fewer_late_than_lengths_for_the_same_pod_hours(day: str) -> None:
    seen = compare(SCENARIOS[day](SEED), Terms(seed=SEED, points=20))
    ours, (of_counted, of_stock) = seen.ours.outcome, seen.ratios()

    assert all(rival.outcome.pod_hours <= ours.pod_hours for rival in seen.rivals)
    assert 0 < of_counted <= 0.8
    assert 0 < of_stock <= 0.25
    assert all(ours.late < rival.outcome.late for rival in seen.rivals)
    assert (ours.lost, ours.unfinished) == (0, 0)
