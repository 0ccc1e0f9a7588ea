"""The promise of docs/scaling.md, on its three seeded days."""

from __future__ import annotations

import pytest

from worker.ops.simulation.study import Terms, compare
from worker.ops.simulation.workloads import SCENARIOS

SEED = 1


@pytest.mark.parametrize("day", SCENARIOS)
def test_backlog_seconds_leave_fewer_late_than_lengths_for_the_same_pod_hours(day: str) -> None:
    seen = compare(SCENARIOS[day](SEED), Terms(seed=SEED, points=20))
    ours, (counted, stock) = seen.ours.outcome, seen.rivals

    assert counted.outcome.pod_hours <= ours.pod_hours
    assert ours.late <= 0.8 * counted.outcome.late
    assert ours.late <= 0.25 * stock.outcome.late
    assert (ours.lost, ours.unfinished) == (0, 0)
