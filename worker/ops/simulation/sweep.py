"""Each policy at many targets, and what the others reach at the pod-hours of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from worker.ops.simulation.outcome import Outcome, outcome_of
from worker.ops.simulation.simulator import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.ops.simulation.policies import Policy, Surroundings
    from worker.ops.simulation.traces import Trace

NEARBY: Final = 0.1  # of the pod-hours
FEWEST_FOR_A_LINE: Final = 4


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


def late_at(points: Sequence[Point], pod_hours: float) -> float:
    """Return how many late messages a policy has at a cost: where its curve is there, at least half a message.

    A point alone is lucky or not: the next target, which nobody can tell from it beforehand, may have a fifth more. So
    a straight line through the logarithms of the points nearby stands for them; far from any, it lies between two.
    """
    ordered = sorted((point.outcome.pod_hours, max(point.outcome.late, 0.5)) for point in points)
    hours, late = (np.array(column) for column in zip(*ordered, strict=True))
    near = np.abs(hours - pod_hours) <= NEARBY * pod_hours
    if near.sum() < FEWEST_FOR_A_LINE or not hours[near].min() < pod_hours < hours[near].max():
        return float(np.exp(np.interp(pod_hours, hours, np.log(late))))
    return float(np.exp(np.polyval(np.polyfit(hours[near], np.log(late[near]), 1), pod_hours)))


def best_within(points: Sequence[Point], pod_hours: float) -> Point:
    """Return the point with the fewest late messages among those that cost at most `pod_hours`; else the cheapest."""
    affordable = [point for point in points if point.outcome.pod_hours <= pod_hours]
    if not affordable:
        return min(points, key=lambda point: point.outcome.pod_hours)
    return min(affordable, key=lambda point: (point.outcome.late, point.outcome.pod_hours))
