"""The simulation against what queueing theory and a pencil say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from schemas.names import Band
from tests.simulations import CALM, ONE_POD, poisson, policy, simulated, trace_of
from worker.ops.simulation.autoscaler import Limits, Scaling
from worker.ops.simulation.batchmill_worker import BatchmillWorker
from worker.ops.simulation.celery_worker import CeleryWorker
from worker.ops.simulation.outcome import outcome_of
from worker.ops.simulation.policies import Surroundings

ONE_BY_ONE = BatchmillWorker(few=1, most=1)
ALL_AT_ONCE = BatchmillWorker(few=10_000, most=10_000)
MESSAGES = 20_000


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_waits_as_md1_does(load: float) -> None:
    arrival_s = poisson(MESSAGES, load)

    run = simulated(trace_of(arrival_s, 1.0, end_s=arrival_s[-1] + 1000), policy(ONE_BY_ONE))

    assert run.wait_s.mean() == pytest.approx(load / (2 * (1 - load)), rel=0.08)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_sharing_waits_as_processor_sharing_does_whatever_the_sizes(load: float) -> None:
    arrival_s = poisson(MESSAGES, load)
    service_s = np.random.default_rng(3).exponential(1.0, MESSAGES)

    run = simulated(trace_of(arrival_s, service_s, end_s=arrival_s[-1] + 1000), policy(ALL_AT_ONCE))

    assert run.wait_s.mean() == pytest.approx(load / (1 - load), rel=0.12)


def test_several_pods_wait_as_erlang_c_says() -> None:
    pods, load, rng = 4, 3.2, np.random.default_rng(5)
    arrival_s = poisson(MESSAGES, load)
    service_s = rng.exponential(1.0, MESSAGES)
    scaling = Scaling(target=1.0, min_replicas=pods, max_replicas=pods)

    run = simulated(trace_of(arrival_s, service_s, end_s=arrival_s[-1] + 1000), policy(ONE_BY_ONE, scaling))

    free = sum(load**k / math.factorial(k) for k in range(pods))
    busy = load**pods / math.factorial(pods) * pods / (pods - load)
    assert run.wait_s.mean() == pytest.approx(busy / (free + busy) / (pods - load), rel=0.1)


def test_sharing_by_hand() -> None:
    """The first works alone for 1 s, both share for 2 s, then the first has 1 s left."""
    run = simulated(trace_of([0.0, 1.0], [3.0, 1.0]), policy(ALL_AT_ONCE))

    assert run.wait_s.tolist() == pytest.approx([1.0, 1.0])


def test_the_urgent_band_goes_first_within_a_worker() -> None:
    trace = trace_of([0.0, 1.0], [10.0, 2.0], band=[Band.BULK, Band.INTERACTIVE])

    assert simulated(trace, policy(ALL_AT_ONCE)).wait_s.tolist() == pytest.approx([2.0, 0.0])


def test_the_urgent_band_leaves_the_queue_first_unless_there_is_one_list() -> None:
    trace = trace_of([0.0, 1.0, 2.0], [10.0, 5.0, 1.0], band=[Band.BULK, Band.BULK, Band.INTERACTIVE])

    assert simulated(trace, policy(ONE_BY_ONE)).wait_s.tolist() == pytest.approx([0.0, 10.0, 8.0])
    assert simulated(trace, policy(ONE_BY_ONE, has_bands=False)).wait_s.tolist() == pytest.approx([0.0, 9.0, 13.0])


def test_a_worker_with_a_gain_is_that_much_faster() -> None:
    worker = BatchmillWorker(few=10, gains=((1, 1.0), (2, 2.0)))

    run = simulated(trace_of([0.0, 0.0], 4.0), policy(worker))

    assert run.wait_s.tolist() == [0.0, 0.0], "two in the time of one each"


def test_credit_leaves_work_to_others() -> None:
    trace = trace_of([0.0] * 6, 10.0)
    scaling = Scaling(target=1.0, min_replicas=1, max_replicas=2, sync_s=15.0, up=Limits(pods=4))

    run = simulated(trace, policy(BatchmillWorker(few=1, credit_s=1.0), scaling))

    # The second pod is ready at 35 s and finds two of six still waiting or begun: 10, 20, 30, 40 | 45 | 50.
    assert sorted(run.wait_s.tolist()) == pytest.approx([0.0, 10.0, 20.0, 30.0, 35.0, 40.0])


def test_a_stock_worker_hoards_four_more() -> None:
    trace = trace_of([0.0] * 6, 10.0)
    scaling = Scaling(target=1.0, min_replicas=1, max_replicas=2, up=Limits(pods=4))

    run = simulated(trace, policy(CeleryWorker(), scaling, has_bands=False))

    # One runs and four are reserved, then a fifth: nothing is left for the second pod.
    assert sorted(run.wait_s.tolist()) == pytest.approx([0.0, 10.0, 20.0, 30.0, 40.0, 50.0])


def test_late_is_beyond_the_objective_of_the_band() -> None:
    trace = trace_of([0.0, 0.0, 0.0], 10.0, band=[Band.INTERACTIVE, Band.INTERACTIVE, Band.BULK], end_s=3600.0)

    seen = outcome_of(trace, simulated(trace, policy(ONE_BY_ONE)), (5.0, 5.0, 20.0))

    assert (seen.late, seen.late_share) == (1, pytest.approx(1 / 3))
    assert (seen.wait_p50_s, seen.wait_p99_s) == pytest.approx((10.0, 20.0))
    assert (seen.pod_hours, seen.flaps, seen.peak) == (1.0, 0, 1)


def test_flaps_are_turns() -> None:
    bursts = [float(start) for start in (0, 2000, 4000) for _ in range(10)]
    scaling = Scaling(target=1.0, min_replicas=1, max_replicas=5)
    trace = trace_of(bursts, 10.0, end_s=6000.0)

    seen = outcome_of(trace, simulated(trace, policy(ONE_BY_ONE, scaling)), (5.0,) * 3)

    assert (seen.flaps, seen.peak) == (5, 5), "up, down, up, down, up, down"


def test_what_does_not_end_in_time_is_unfinished_and_late() -> None:
    trace = trace_of([0.0, 0.0], [10.0, 1000.0], end_s=100.0)

    seen = outcome_of(trace, simulated(trace, policy(ONE_BY_ONE, ONE_POD), CALM), (60.0,) * 3)

    assert (seen.late, seen.unfinished, seen.lost, seen.wait_p99_s) == (1, 1, 0, math.inf)


def test_a_start_takes_as_long_as_it_is_told_and_varies() -> None:
    trace = trace_of([0.0] * 8, 100.0, end_s=3600.0)
    scaling = Scaling(target=1.0, min_replicas=0, max_replicas=8, up=Limits(pods=8))

    waits_s = simulated(trace, policy(ONE_BY_ONE, scaling), Surroundings(start_s=20.0, kills_per_hour=0.0)).wait_s

    assert len(set(np.round(waits_s, 3))) == 8
    assert waits_s.mean() == pytest.approx(20.0 + 30.0 + 15.0, rel=0.3)
