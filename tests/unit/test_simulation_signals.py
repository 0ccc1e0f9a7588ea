"""What an autoscaler can know, and the numbers made of it."""

from __future__ import annotations

import math

import pytest

from worker.ops.simulation.signals import LOAD_S, RATE_BUSY_S, BacklogSeconds, Gauges, ListLength
from worker.ops.simulation.workers import Work

TARGET_S = 25.0


def gauges() -> Gauges:
    """Ten messages of 30 units and two bulk ones of 500 wait; a unit takes 2 s, and a message of the mean 20 s."""
    return Gauges(
        waiting=[10, 0, 2],
        waiting_units=[30.0, 0.0, 500.0],
        held=7,
        load=[1.5, 0.0, 2.0],
        busy_s=200.0,
        units=100.0,
        ended=10.0,
        units_per_message=8.0,
    )


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        pytest.param(ListLength(), 12.0, id="the list"),
        pytest.param(ListLength(in_flight=True), 19.0, id="and what is held"),
        pytest.param(BacklogSeconds(by_units=False, by_load=False), 12 * 20.0 + 7 * 20.0, id="messages at the mean"),
        pytest.param(BacklogSeconds(by_load=False), 530 * 2.0 + 7 * 20.0, id="units"),
        pytest.param(BacklogSeconds(is_sized=False, by_load=False), 12 * 8 * 2.0 + 7 * 20.0, id="units of a mean size"),
        pytest.param(BacklogSeconds(), 530 * 2.0 + TARGET_S * 3.5, id="load instead of what is held"),
        pytest.param(BacklogSeconds(headroom=0.2), 530 * 2.0 + TARGET_S * 3.5 * 1.2, id="load and headroom"),
        pytest.param(
            BacklogSeconds(weights=(1.0, 1.0, 0.01)), 60.0 + 10.0 + TARGET_S * 1.52, id="bulk work counts for less"
        ),
    ],
)
def test_a_signal_is_a_formula(signal: ListLength | BacklogSeconds, expected: float) -> None:
    assert signal.value(gauges(), TARGET_S) == pytest.approx(expected)


def test_an_empty_queue_with_idle_workers_is_no_backlog() -> None:
    assert BacklogSeconds().value(Gauges(), TARGET_S) == 0.0


def test_waiting_is_counted_in_messages_and_units() -> None:
    seen = Gauges(units_per_message=4.0)

    seen.wait(2, 54.0)
    seen.wait(0, 1.0)
    seen.open(2, 54.0)

    assert (seen.waiting, seen.waiting_units) == ([1, 0, 0], [1.0, 0.0, 0.0])
    assert seen.units_per_message == pytest.approx(5.0), "a fiftieth of the way"


def test_load_follows_the_busy_share_and_rates_the_busy_time() -> None:
    seen, work = Gauges(), Work(busy_s=[15.0, 0.0, 7.5], units=45.0, ended=9)

    seen.learn([work, Work()], 15.0)

    moved = 1 - math.exp(-15.0 / LOAD_S)
    assert seen.load == pytest.approx([moved, 0.0, moved / 2])
    assert seen.units / seen.busy_s == pytest.approx(2.0)
    assert seen.ended / seen.busy_s == pytest.approx(0.4)
    assert work == Work(), "what was told is not told again"


def test_a_rate_survives_idle_hours_and_yields_to_work() -> None:
    seen = Gauges(busy_s=60.0, units=60.0, ended=60.0)

    seen.learn([], 36_000.0)
    assert seen.units / seen.busy_s == pytest.approx(1.0)
    seen.learn([Work(busy_s=[10 * RATE_BUSY_S, 0.0, 0.0], units=20 * RATE_BUSY_S)], 10.0)
    assert seen.units / seen.busy_s == pytest.approx(2.0, rel=0.03)
