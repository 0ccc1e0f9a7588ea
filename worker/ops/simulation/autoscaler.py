"""How KEDA and the Horizontal Pod Autoscaler turn a number into replicas: pure, and on a clock of the caller's.

KEDA wakes a deployment from zero and puts it back; between one and the maximum its ScaledObject is an HPA over one
external metric of type AverageValue. So: the metric over the target, rounded up, unless it is within the
tolerance; then the stabilisation windows; then what the policies allow in a period; then the bounds. Not modelled:
metrics that are missing, and a controller that is late.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a direction may go within a period; the larger of both steps counts.

    Attributes:
        percent: of the replicas at the period's start.
        pods: replicas.
        period_s: over which both are counted.
        window_s: the most cautious recommendation of this long counts.
    """

    percent: float = 100.0
    pods: int = 0
    period_s: float = 15.0
    window_s: float = 0.0


DEFAULT_UP: Final = Limits(percent=100.0, pods=4)
DEFAULT_DOWN: Final = Limits(percent=100.0, window_s=300.0)


@dataclass(frozen=True, slots=True)
class Scaling:
    """An autoscaler's settings; the defaults are those of KEDA and of the HPA.

    Attributes:
        target: of the metric, for each replica.
        min_replicas: 0 = to zero when idle.
        max_replicas: the bound.
        activation: above this the metric wakes from zero, and keeps awake.
        polling_s: how often KEDA looks whether to wake.
        cooldown_s: how long the metric has been at most `activation` before all is put to zero.
        sync_s: how often the HPA decides.
        tolerance: share by which the metric may miss the target.
        up, down: the limits of each direction.
    """

    target: float
    min_replicas: int = 1
    max_replicas: int = 40
    activation: float = 0.0
    polling_s: float = 30.0
    cooldown_s: float = 300.0
    sync_s: float = 15.0
    tolerance: float = 0.1
    up: Limits = DEFAULT_UP
    down: Limits = DEFAULT_DOWN


class Autoscaler:
    """Decides one deployment's replicas, with what it recommended and did in the last minutes in mind.

    Args:
        scaling: the settings.
    """

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._recommended: deque[tuple[float, int]] = deque()
        self._steps: deque[tuple[float, int]] = deque()
        self._active_s = 0.0

    def wake(self, now_s: float, metric: float, replicas: int) -> int:
        """Return the replicas after KEDA has looked: more than none if woken, none if cooled down."""
        scaling = self._scaling
        if metric > scaling.activation:
            self._active_s = now_s
            return replicas or max(1, scaling.min_replicas)
        if not scaling.min_replicas and replicas and now_s - self._active_s >= scaling.cooldown_s:
            self._recommended.clear()
            self._steps.clear()
            return 0
        return replicas

    def decide(self, now_s: float, metric: float, replicas: int) -> int:
        """Return the replicas after the HPA has decided; it leaves none as none."""
        if not replicas:
            return 0
        stable = self._stabilised(now_s, self._bounded(self._wanted(metric, replicas)), replicas)
        allowed = self._allowed(now_s, stable, replicas)
        if allowed != replicas:
            self._steps.append((now_s, allowed - replicas))
        return allowed

    def _wanted(self, metric: float, replicas: int) -> int:
        """Return what the metric alone asks for."""
        per_target = metric / self._scaling.target
        if abs(per_target / replicas - 1.0) <= self._scaling.tolerance:
            return replicas
        return math.ceil(round(per_target, 9))

    def _bounded(self, wanted: int) -> int:
        return min(max(wanted, self._scaling.min_replicas, 1), self._scaling.max_replicas)

    def _stabilised(self, now_s: float, wanted: int, replicas: int) -> int:
        """Return the least that was recommended within the window of ups, and the most within that of downs."""
        up, down = self._scaling.up.window_s, self._scaling.down.window_s
        self._recommended.append((now_s, wanted))
        while self._recommended[0][0] < now_s - max(up, down):
            self._recommended.popleft()
        floor = min(count for at_s, count in self._recommended if at_s >= now_s - up)
        ceiling = max(count for at_s, count in self._recommended if at_s >= now_s - down)
        return min(max(replicas, floor), ceiling)

    def _allowed(self, now_s: float, wanted: int, replicas: int) -> int:
        """Return `wanted`, or as far towards it as the period's limits allow."""
        up, down = self._scaling.up, self._scaling.down
        while self._steps and self._steps[0][0] <= now_s - max(up.period_s, down.period_s):
            self._steps.popleft()
        start_up = replicas - sum(step for at_s, step in self._steps if at_s > now_s - up.period_s)
        start_down = replicas - sum(step for at_s, step in self._steps if at_s > now_s - down.period_s)
        highest = max(start_up + up.pods, math.ceil(start_up * (1 + up.percent / 100)))
        lowest = min(start_down - down.pods, math.floor(start_down * (1 - down.percent / 100)))
        return max(min(replicas, lowest), min(max(replicas, highest), wanted))
