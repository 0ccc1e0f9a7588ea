"""What becomes of messages when pods go: each ends once, or is lost for a reason."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.names import Band
from tests.simulations import CALM, poisson, policy, simulated, trace_of
from worker.ops.simulation.autoscaler import Limits, Scaling
from worker.ops.simulation.batchmill_worker import BatchmillWorker, SharingWorker
from worker.ops.simulation.celery_worker import CeleryWorker
from worker.ops.simulation.outcome import outcome_of
from worker.ops.simulation.policies import Surroundings
from worker.ops.simulation.signals import BacklogSeconds, ListLength, Signal

OURS = BatchmillWorker()
STOCK = CeleryWorker()
LATE_ACKS = CeleryWorker(acks_late=True)


def started(worker: BatchmillWorker | CeleryWorker, services_s: list[float]):  # noqa: ANN201 - either of two
    """Return a worker that holds messages of these sizes since 0."""
    one = worker.start(trace_of([0.0] * len(services_s), services_s).messages())
    for message in range(len(services_s)):
        assert one.has_room()
        one.take(message, 0.0)
    return one


def test_sigterm_hands_back_at_once_what_does_not_end() -> None:
    worker = started(OURS, [100.0, 0.1, 100.0])

    assert worker.stop(1.0) == 1.5
    assert worker.advance(1.5) == [1]
    left = worker.leave(1.5, killed=False)

    assert (left.lost, list(left.back)) == ((), [(2, 0.0), (0, 0.0)]), "the oldest is served first again"
    assert not worker.has_room()


def test_a_kill_costs_a_lease() -> None:
    assert [delay_s for _, delay_s in started(OURS, [100.0] * 2).leave(1.0, killed=True).back] == [13.0, 13.0]


def test_a_stock_worker_finishes_what_runs_and_gives_back_what_is_reserved() -> None:
    worker = started(STOCK, [20.0, 5.0, 5.0])

    assert worker.stop(1.0) == 31.0
    assert worker.advance(20.0) == [0]
    assert worker.is_drained()
    assert list(worker.leave(20.0, killed=False).back) == [(2, 0.0), (1, 0.0)]


@pytest.mark.parametrize(
    ("settings_", "lost", "back"),
    [
        pytest.param(STOCK, [0], [(1, 3569.0)], id="acknowledged early: what runs is lost"),
        pytest.param(LATE_ACKS, [], [(0, 3569.0), (1, 3569.0)], id="late: it comes back after the visibility timeout"),
    ],
)
def test_a_stock_worker_that_outlives_its_grace_is_killed(
    settings_: CeleryWorker, lost: list[int], back: list[tuple[int, float]]
) -> None:
    worker = started(settings_, [100.0, 5.0])

    assert worker.advance(worker.stop(1.0)) == []
    left = worker.leave(31.0, killed=False)

    assert (list(left.lost), sorted(left.back)) == (lost, back)


def test_late_acknowledgement_counts_what_runs_as_prefetched() -> None:
    assert not started(LATE_ACKS, [9.0] * 4).has_room()
    assert started(STOCK, [9.0] * 4).has_room()
    assert not started(STOCK, [9.0] * 5).has_room()


def test_our_worker_takes_eight_large_ones_and_more_small_ones() -> None:
    assert not started(OURS, [9.0] * 8).has_room()
    assert started(OURS, [0.1] * 8).has_room()


def test_the_work_of_a_pod_is_counted_by_band() -> None:
    messages = trace_of([0.0, 0.0], [4.0, 2.0], band=[Band.BULK, Band.INTERACTIVE]).messages()
    worker = SharingWorker(OURS, messages)
    worker.take(0, 0.0)
    worker.take(1, 1.0)
    worker.advance(3.0)

    assert worker.work.busy_s == pytest.approx([2.0, 0.0, 1.0])
    assert worker.work.units == pytest.approx(3.0)


def test_a_list_length_does_not_see_what_runs_and_scales_it_away() -> None:
    """Two documents of ten minutes; the list is empty while they run, so the autoscaler kills one of them."""
    trace = trace_of([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 600.0, end_s=7200.0)
    scaling = Scaling(target=1.0, min_replicas=0, max_replicas=6, down=Limits(window_s=300.0))

    blind = simulated(trace, policy(STOCK, scaling, ListLength(), has_bands=False))
    seeing = simulated(trace, policy(BatchmillWorker(few=1), scaling, BacklogSeconds()))

    assert blind.lost + blind.redeliveries > 0
    assert seeing.lost == seeing.redeliveries == 0
    assert np.isfinite(seeing.wait_s).all()


def test_a_killed_worker_costs_us_seconds_and_stock_the_message() -> None:
    trace = trace_of(poisson(400, 1.0), 2.0, end_s=8000.0)
    often = Surroundings(start_s=20.0, kills_per_hour=60.0, objectives_s=(60.0,) * 3)
    scaling = Scaling(target=2.0, min_replicas=3, max_replicas=6)

    ours = outcome_of(trace, simulated(trace, policy(OURS, scaling), often), often.objectives_s)
    stock = outcome_of(trace, simulated(trace, policy(STOCK, scaling), often), often.objectives_s)
    late = outcome_of(trace, simulated(trace, policy(LATE_ACKS, scaling), often), often.objectives_s)

    assert (ours.lost, ours.unfinished) == (0, 0)
    assert ours.redeliveries > 0
    assert stock.lost > 0
    assert late.lost == 0
    assert late.late > ours.late


@settings(max_examples=40)
@given(
    services_s=st.lists(st.floats(0.01, 300.0), min_size=1, max_size=60),
    seed=st.integers(0, 100),
    worker=st.sampled_from([OURS, BatchmillWorker(few=1), STOCK, LATE_ACKS, CeleryWorker(concurrency=2)]),
    signal=st.sampled_from([ListLength(), ListLength(in_flight=True), BacklogSeconds()]),
    minimum=st.integers(0, 2),
)
def test_each_message_ends_once_or_is_lost(
    services_s: list[float],
    seed: int,
    worker: BatchmillWorker | CeleryWorker,
    signal: Signal,
    minimum: int,
) -> None:
    assume(minimum or signal != ListLength())  # alone it takes the last pod from a long message again and again
    arrival_s = np.sort(np.random.default_rng(seed).uniform(0, 600, len(services_s)))
    trace = trace_of(arrival_s, services_s, end_s=100_000.0)
    harsh = Surroundings(start_s=15.0, kills_per_hour=4.0)
    one = policy(worker, Scaling(target=5.0, min_replicas=minimum, max_replicas=6), signal)

    run = simulated(trace, one, harsh, seed)
    again = simulated(trace, one, harsh, seed)

    ended = np.isfinite(run.wait_s)
    assert ended.sum() + run.lost == len(services_s)
    assert (run.wait_s[ended] >= 0).all()
    assert isinstance(worker, CeleryWorker) or not run.lost
    assert run.wait_s.tolist() == again.wait_s.tolist()
    assert (run.pod_s, run.replicas, run.redeliveries) == (again.pod_s, again.replicas, again.redeliveries)


def test_calm_surroundings_redeliver_nothing() -> None:
    trace = trace_of(poisson(300, 1.0), 0.5, end_s=2000.0)

    assert simulated(trace, policy(OURS), CALM).redeliveries == 0
