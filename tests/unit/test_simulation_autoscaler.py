"""KEDA's and the HPA's arithmetic, with the numbers of their documentation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worker.ops.simulation.autoscaler import Autoscaler, Limits, Scaling

FREE = Limits(percent=10_000.0)
AT_ONCE = Scaling(target=10.0, max_replicas=100, up=FREE, down=Limits())


@pytest.mark.parametrize(
    ("metric", "replicas", "expected"),
    [
        pytest.param(100.0, 5, 10, id="twice the target doubles"),
        pytest.param(50.0, 10, 5, id="half the target halves"),
        pytest.param(41.0, 2, 5, id="a started replica is a whole one"),
        pytest.param(109.0, 10, 10, id="within the tolerance above"),
        pytest.param(91.0, 10, 10, id="within the tolerance below"),
        pytest.param(112.0, 10, 12, id="beyond the tolerance"),
        pytest.param(0.0, 3, 1, id="never below one while awake"),
        pytest.param(5000.0, 50, 100, id="never above the most"),
        pytest.param(500.0, 0, 0, id="asleep: only KEDA wakes"),
    ],
)
def test_replicas_are_the_metric_over_the_target(metric: float, replicas: int, expected: int) -> None:
    assert Autoscaler(AT_ONCE).decide(0.0, metric, replicas) == expected


def test_a_fall_waits_for_the_highest_recommendation_of_the_window() -> None:
    autoscaler = Autoscaler(replace(AT_ONCE, down=Limits(window_s=300.0)))

    replicas = autoscaler.decide(0.0, 80.0, 8)
    falls = [(at_s, replicas := autoscaler.decide(at_s, metric, replicas)) for at_s, metric in _falling()]

    assert falls[0] == (15.0, 8)
    assert dict(falls)[300.0] == 8
    assert dict(falls)[315.0] == 5, "what 15 s asked for"
    assert dict(falls)[330.0] == 2


def _falling() -> list[tuple[float, float]]:
    return [(15.0, 50.0), *((float(at_s), 20.0) for at_s in range(30, 345, 15))]


def test_a_rise_waits_for_the_lowest_recommendation_of_its_window() -> None:
    autoscaler = Autoscaler(replace(AT_ONCE, up=Limits(percent=10_000.0, window_s=30.0)))

    seen = [autoscaler.decide(at_s, metric, 1) for at_s, metric in ((0, 10), (15, 90), (30, 90), (45, 90))]

    assert seen == [1, 1, 1, 9]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(Limits(percent=100.0, pods=4), [5, 10, 20, 40], id="the default: the larger of 4 pods and double"),
        pytest.param(Limits(percent=0.0, pods=4), [5, 9, 13, 17], id="pods"),
        pytest.param(Limits(percent=100.0, period_s=60.0), [2, 2, 2, 2], id="the period is longer than a decision"),
    ],
)
def test_a_rise_is_limited_in_each_period(limits: Limits, expected: list[int]) -> None:
    autoscaler, replicas = Autoscaler(replace(AT_ONCE, up=limits)), 1

    seen = [replicas := autoscaler.decide(step * 15.0, 1000.0, replicas) for step in range(4)]

    assert seen == expected


def test_a_fall_is_limited_in_each_period() -> None:
    autoscaler, replicas = Autoscaler(replace(AT_ONCE, down=Limits(percent=10.0, period_s=60.0))), 80

    seen = [replicas := autoscaler.decide(step * 60.0, 10.0, replicas) for step in range(3)]

    assert seen == [72, 64, 57]


def test_keda_wakes_above_the_activation_and_sleeps_after_the_cooldown() -> None:
    autoscaler = Autoscaler(Scaling(target=10.0, min_replicas=0, activation=5.0, cooldown_s=300.0))

    assert autoscaler.wake(0.0, 5.0, 0) == 0
    assert autoscaler.wake(30.0, 6.0, 0) == 1
    assert autoscaler.wake(60.0, 0.0, 1) == 1
    assert autoscaler.wake(329.0, 0.0, 1) == 1
    assert autoscaler.wake(330.0, 0.0, 1) == 0


def test_keda_never_puts_to_sleep_what_has_a_least() -> None:
    assert Autoscaler(Scaling(target=10.0, min_replicas=2)).wake(9999.0, 0.0, 2) == 2
