"""Who competes: a signal, the autoscaler that follows it, and the worker that it scales.

All run in the same surroundings: the same pods, started as slowly, bounded alike and driven out as often.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from worker.ops.simulation.autoscaler import DEFAULT_DOWN, Scaling
from worker.ops.simulation.celery_worker import CeleryWorker
from worker.ops.simulation.signals import BacklogSeconds, ListLength

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.ops.simulation.batchmill_worker import BatchmillWorker
    from worker.ops.simulation.signals import Signal

BACKLOG_SECONDS: Final = "backlog seconds"
LENGTH_IN_FLIGHT: Final = "list length + in flight"
LIST_LENGTH: Final = "list length, Celery"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What no policy can choose.

    Attributes:
        start_s: from the decision to a ready pod: scheduled, image pulled, model warm.
        start_jitter: sigma of its log-normal spread.
        kills_per_hour: of each pod, without notice: evicted, out of memory, node gone.
        objectives_s: wait beyond which a message is late, by band.
    """

    start_s: float = 25.0
    start_jitter: float = 0.25
    kills_per_hour: float = 0.02
    objectives_s: Sequence[float] = (60.0, 60.0, 14_400.0)


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to run a queue.

    Attributes:
        name: in tables and pictures.
        signal: what the autoscaler looks at.
        worker: what its pods run.
        scaling: the autoscaler's settings.
        has_bands: priorities are honoured; else one list, first come, first served.
    """

    name: str
    signal: Signal
    worker: BatchmillWorker | CeleryWorker
    scaling: Scaling = field(default_factory=lambda: Scaling(target=25.0))
    has_bands: bool = True

    def at(self, target: float) -> Policy:
        """Return the policy with another target."""
        return replace(self, scaling=replace(self.scaling, target=target))


def contestants(scaling: Scaling, signal: BacklogSeconds, worker: BatchmillWorker) -> tuple[Policy, Policy, Policy]:
    """Return ours, the same worker scaled by messages, and a stock worker scaled by the length of its list.

    Args:
        scaling: of all three, but that the last has the HPA's default window; `target` is ours, in seconds.
        signal: ours.
        worker: of the first two.
    """
    return (
        Policy(BACKLOG_SECONDS, signal, worker, scaling),
        Policy(LENGTH_IN_FLIGHT, ListLength(in_flight=True), worker, scaling),
        Policy(LIST_LENGTH, ListLength(), CeleryWorker(), replace(scaling, down=DEFAULT_DOWN), has_bands=False),
    )
