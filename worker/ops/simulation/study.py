"""A comparison: our policy at its target, the others at the best of theirs for the same pod-hours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from worker.ops.scaling import DEFAULT_TARGETS
from worker.ops.simulation.autoscaler import Scaling
from worker.ops.simulation.batchmill_worker import BatchmillWorker
from worker.ops.simulation.policies import Surroundings, contestants
from worker.ops.simulation.service_curve import DEFAULT_GAINS, Gains
from worker.ops.simulation.signals import BacklogSeconds
from worker.ops.simulation.sweep import Point, best_within, late_at, run_at, spaced, sweep

if TYPE_CHECKING:
    from worker.ops.simulation.policies import Policy
    from worker.ops.simulation.workloads import Scenario

SECONDS: Final = (4.0, 300.0)  # targets that are tried; of list lengths, as many messages of the mean size


@dataclass(frozen=True, slots=True)
class Terms:
    """What a comparison may be told.

    Attributes:
        seed: of pods' starts and kills.
        points: targets of each policy.
        target_s: ours; None = the scenario's.
        bulk_target_s: backlog seconds of bulk work for each replica.
        scaling: of our workers' policies; its target is not used.
        surroundings: of all policies; its objectives are not used.
        gains: of our worker.
    """

    seed: int = 1
    points: int = 24
    target_s: float | None = None
    bulk_target_s: float = DEFAULT_TARGETS.bulk_target_s
    scaling: Scaling = field(default_factory=lambda: Scaling(target=1.0))
    surroundings: Surroundings = field(default_factory=Surroundings)
    gains: Gains = DEFAULT_GAINS


@dataclass(frozen=True, slots=True)
class Comparison:
    """Three policies over one trace.

    Attributes:
        trace: its name.
        ours: at our target.
        rivals: the others at the pod-hours of `ours`, each at the target with the fewest late messages.
        curves: all points of the rivals.
    """

    trace: str
    ours: Point
    rivals: tuple[Point, ...]
    curves: tuple[tuple[Point, ...], ...]

    def ratios(self) -> tuple[float, ...]:
        """Return our late messages over those of each rival's curve at our pod-hours."""
        ours = self.ours.outcome
        return tuple(ours.late / late_at(curve, ours.pod_hours) for curve in self.curves)


def policies(scenario: Scenario, terms: Terms) -> tuple[Policy, ...]:
    """Return the contestants, ours first."""
    target_s = terms.target_s or scenario.target_s
    worker = BatchmillWorker(few=scenario.few, gains=terms.gains)
    return contestants(replace(terms.scaling, target=target_s), BacklogSeconds(terms.bulk_target_s), worker)


def compare(scenario: Scenario, terms: Terms) -> Comparison:
    """Simulate ours once and the others at each target, which takes about 0.1 s for 10,000 messages each time."""
    trace, surroundings = scenario.trace, _surroundings(scenario, terms)
    ours, *others = policies(scenario, terms)
    chosen = run_at(trace, ours, surroundings, terms.seed)
    mean_s = float(trace.service_s.mean())
    targets = spaced(SECONDS[0] / mean_s, SECONDS[1] / mean_s, terms.points)
    curves = tuple(sweep(trace, policy, targets, surroundings, terms.seed) for policy in others)
    rivals = tuple(best_within(points, chosen.outcome.pod_hours) for points in curves)
    return Comparison(trace.name, chosen, rivals, curves)


def our_curve(scenario: Scenario, terms: Terms) -> tuple[Point, ...]:
    """Simulate our policy at each target."""
    ours = policies(scenario, terms)[0]
    targets = spaced(*SECONDS, terms.points)
    return sweep(scenario.trace, ours, targets, _surroundings(scenario, terms), terms.seed)


def _surroundings(scenario: Scenario, terms: Terms) -> Surroundings:
    return replace(terms.surroundings, objectives_s=scenario.objectives_s)
