"""What an autoscaler can know, and the numbers made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.names import Band
from tests.simulations import policy, simulated, trace_of
from tests.telling import news
from worker.loads import NO_LOAD, SMOOTHING_S
from worker.ops.scaling import DEFAULT_TARGETS, Demand, backlog_s
from worker.ops.simulation.autoscaler import Scaling
from worker.ops.simulation.batchmill_worker import BatchmillWorker
from worker.ops.simulation.signals import BacklogSeconds, Gauges, ListLength, Signal
from worker.ops.simulation.telling import RENEW_S, Teller
from worker.ops.simulation.workers import Work
from worker.rates import NO_NEWS

TARGET_S = 25.0
SEEN = Gauges(waiting=[10, 0, 2], load=(1.5, 0.0, 2.0), in_flight=7, workers=4, rate=0.05)


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        pytest.param(ListLength(), 12.0, id="the list"),
        pytest.param(ListLength(in_flight=True), 19.0, id="and what is held"),
        pytest.param(BacklogSeconds(by_load=False), 19 * 20.0, id="the same in seconds"),
        pytest.param(BacklogSeconds(bulk_target_s=TARGET_S), 12 * 20.0 + TARGET_S * 3.5, id="load for what is held"),
        pytest.param(BacklogSeconds(bulk_target_s=2500.0), 200 + 0.4 + TARGET_S * 1.52, id="bulk work counts for less"),
    ],
)
def test_a_signal_is_a_formula(signal: Signal, expected: float) -> None:
    assert signal.value(SEEN, TARGET_S) == pytest.approx(expected)


@pytest.mark.parametrize(
    "seen",
    [SEEN, replace(SEEN, load=NO_LOAD), Gauges(rate=2.0), replace(SEEN, sizes=(0.2, 1.0, 5.0))],
    ids=["busy", "fresh", "idle", "sizes"],
)
def test_ours_is_what_the_exporter_says(seen: Gauges) -> None:
    said = backlog_s(Demand(seen.waiting, seen.load, seen.in_flight, seen.workers, seen.rate, seen.sizes))

    assert BacklogSeconds().value(seen, DEFAULT_TARGETS.target_s) == said


def test_without_a_rate_there_is_no_backlog() -> None:
    unknown = replace(SEEN, rate=None)

    assert BacklogSeconds().value(unknown, TARGET_S) == BacklogSeconds(by_load=False).value(unknown, TARGET_S) == 0.0


def test_a_worker_tells_its_load_and_a_pace_once_a_message_is_partly_done() -> None:
    teller, work = Teller(100.0), Work(busy_s=[3.0, 0.0, 1.0], units=8.7)
    teller.opened(Band.NORMAL, 200.0)

    load, told = teller.renewal(work, 100.0 + RENEW_S)

    moved = RENEW_S / SMOOTHING_S
    assert load == pytest.approx((0.75 * moved, 0.0, 0.25 * moved), abs=0.006), "told in hundredths"
    assert told == news(8 / 4.0, 1, 200, band=Band.NORMAL)
    assert work == Work(units=pytest.approx(0.7)), "a unit is told when it has been done"


def test_an_idle_worker_has_no_news() -> None:
    assert Teller(0.0).renewal(Work(), RENEW_S) == (NO_LOAD, NO_NEWS)


def test_a_worker_that_keeps_busy_counts_as_one() -> None:
    """After a first burst messages come as fast as two workers end them, and two workers stay without a queue."""
    trace = trace_of([second * 5.0 for second in range(1000)], 9.9, end_s=5000.0)
    one = policy(BatchmillWorker(few=1), Scaling(target=TARGET_S), BacklogSeconds())

    replicas = [count for at_s, count in simulated(trace, one).replicas if at_s > 2500.0]

    assert set(replicas) <= {2, 3}
