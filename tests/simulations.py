"""Small traces and policies for the tests of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.names import Band
from worker.ops.simulation.autoscaler import Scaling
from worker.ops.simulation.policies import Policy, Surroundings
from worker.ops.simulation.signals import ListLength
from worker.ops.simulation.simulator import Simulation
from worker.ops.simulation.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.ops.simulation.batchmill_worker import BatchmillWorker
    from worker.ops.simulation.celery_worker import CeleryWorker
    from worker.ops.simulation.outcome import Run
    from worker.ops.simulation.signals import Signal

CALM = Surroundings(start_s=20.0, start_jitter=0.0, kills_per_hour=0.0)
ONE_POD = Scaling(target=1.0, min_replicas=1, max_replicas=1)


def trace_of(
    arrival_s: Sequence[float],
    service_s: Sequence[float] | float,
    *,
    band: Sequence[int] | int = Band.INTERACTIVE,
    end_s: float = 20_000.0,
) -> Trace:
    """Return a trace whose units are seconds, begun ones too."""
    count = len(arrival_s)
    services = np.broadcast_to(np.asarray(service_s, dtype=float), count).copy()
    bands = np.broadcast_to(np.asarray(band), count).copy()
    return Trace("test", np.asarray(arrival_s, dtype=float), services, np.ceil(services), bands, end_s)


def poisson(messages: int, per_s: float, seed: int = 7) -> np.ndarray:
    """Return the times of a Poisson process."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / per_s, messages))


def policy(
    worker: BatchmillWorker | CeleryWorker,
    scaling: Scaling = ONE_POD,
    signal: Signal | None = None,
    *,
    has_bands: bool = True,
) -> Policy:
    """Return a policy by its parts."""
    return Policy("test", signal or ListLength(in_flight=True), worker, scaling, has_bands)


def simulated(trace: Trace, one: Policy, surroundings: Surroundings = CALM, seed: int = 0) -> Run:
    """Run a policy over a trace."""
    return Simulation(trace, one, surroundings, seed).run()
