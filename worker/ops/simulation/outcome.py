"""What a simulated day came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from worker.ops.simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Run:
    """What the event loop has recorded.

    Attributes:
        wait_s: float64[messages], from arrival to end less the message's own work; inf = it has not ended.
        lost: messages that nobody has any more.
        redeliveries: messages that went back to the queue, by hand-back, lease or visibility timeout.
        pod_s: seconds of all pods, from their creation to their end.
        replicas: when the wanted number changed, and to what.
    """

    wait_s: NDArray[np.float64]
    lost: int
    redeliveries: int
    pod_s: float
    replicas: Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run in figures.

    Attributes:
        messages: of the trace.
        late: of them, waited longer than the objective of their band, or did not end.
        late_share: late for each message.
        wait_p50_s, wait_p95_s, wait_p99_s: inf where that many did not end.
        pod_hours: of all pods.
        flaps: how often the direction of scaling turned.
        peak: most replicas.
        redeliveries, lost: see `Run`.
        unfinished: neither ended nor lost when the trace was over.
    """

    messages: int
    late: int
    late_share: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    pod_hours: float
    flaps: int
    peak: int
    redeliveries: int
    lost: int
    unfinished: int


def outcome_of(trace: Trace, run: Run, objectives_s: Sequence[float]) -> Outcome:
    """Return the figures of a run; `objectives_s` by band."""
    late = int(np.count_nonzero(run.wait_s > np.asarray(objectives_s)[trace.band]))
    p50_s, p95_s, p99_s = np.percentile(run.wait_s, (50, 95, 99), method="higher").tolist()
    return Outcome(
        messages=len(trace),
        late=late,
        late_share=late / len(trace),
        wait_p50_s=p50_s,
        wait_p95_s=p95_s,
        wait_p99_s=p99_s,
        pod_hours=run.pod_s / 3600,
        flaps=_flaps([count for _, count in run.replicas]),
        peak=max(count for _, count in run.replicas),
        redeliveries=run.redeliveries,
        lost=run.lost,
        unfinished=int(np.count_nonzero(np.isinf(run.wait_s))) - run.lost,
    )


def _flaps(counts: Sequence[int]) -> int:
    """Return how often a rise follows a fall, or a fall a rise."""
    directions = np.sign(np.diff(counts))
    directions = directions[directions != 0]
    return int(np.count_nonzero(directions[1:] != directions[:-1]))
