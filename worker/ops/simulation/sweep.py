"""Each policy at many targets, and what the others reach at the pod-hours of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from worker.ops.simulation.outcome import Outcome, outcome_of
from worker.ops.simulation.simulator import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.ops.simulation.policies import Policy, Surroundings
    from worker.ops.simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Point:
    """What a policy came to at one target."""

    policy: str
    target: float
    outcome: Outcome


def run_at(trace: Trace, policy: Policy, surroundings: Surroundings, seed: int) -> Point:
    """Simulate one policy at its own target."""
    run = Simulation(trace, policy, surroundings, seed).run()
    return Point(policy.name, policy.scaling.target, outcome_of(trace, run, surroundings.objectives_s))


def sweep(
    trace: Trace, policy: Policy, targets: Iterable[float], surroundings: Surroundings, seed: int
) -> tuple[Point, ...]:
    """Simulate a policy at each target."""
    return tuple(run_at(trace, policy.at(target), surroundings, seed) for target in targets)


def spaced(lowest: float, highest: float, points: int) -> tuple[float, ...]:
    """Return targets from the lowest to the highest, each the same multiple of the one before, of three digits."""
    return tuple(dict.fromkeys(float(f"{target:.3g}") for target in np.geomspace(lowest, highest, points).tolist()))


def best_within(points: Sequence[Point], pod_hours: float) -> Point:
    """Return the point with the fewest late messages among those that cost at most `pod_hours`; else the cheapest."""
    affordable = [point for point in points if point.outcome.pod_hours <= pod_hours]
    if not affordable:
        return min(points, key=lambda point: point.outcome.pod_hours)
    return min(affordable, key=lambda point: (point.outcome.late, point.outcome.pod_hours))
