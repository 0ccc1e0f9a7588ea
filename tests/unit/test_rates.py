"""How fast a worker is, by what its messages occupied."""

from __future__ import annotations

import pytest

from worker.rates import ENOUGH_S, HALF_LIFE_S, ServiceRates


@pytest.fixture
def rates() -> ServiceRates:
    return ServiceRates()


def test_the_resource_that_is_occupied_most_decides(rates: ServiceRates) -> None:
    rates.note("classify", 100, {"runners": 2.0, "finisher": 0.5})
    rates.note("bulk", 1, {"runners": 30.0, "slots": 40.0})
    assert rates.news() == pytest.approx({"classify": 50, "bulk": 0.025})


def test_queues_of_one_worker_count_for_themselves(rates: ServiceRates) -> None:
    for _ in range(20):
        rates.note("classify", 10, {"runners": 0.1})
        rates.note("ocr", 1, {"runners": 2.0})
    assert rates.news() == pytest.approx({"classify": 100, "ocr": 0.5}, rel=0.02)


def test_only_queues_with_something_new_are_told(rates: ServiceRates) -> None:
    rates.note("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}
    assert rates.news() == {}
    rates.note("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}


def test_too_little_is_no_rate(rates: ServiceRates) -> None:
    rates.note("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.note("bulk", 0, {"runners": 60.0})  # a retry: time, and no message
    assert rates.news() == {}
    rates.note("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.note("bulk", 1, {"runners": 60.0})
    assert rates.news() == pytest.approx({"classify": 10 / 0.6, "bulk": 1 / 120}, rel=0.15)


def test_what_was_before_fades_with_busy_time(rates: ServiceRates) -> None:
    rates.note("classify", 1000, {"runners": 10.0})
    for _ in range(10):
        rates.note("classify", int(HALF_LIFE_S), {"runners": HALF_LIFE_S})
    assert rates.news() == pytest.approx({"classify": 1.0}, rel=0.01)


def test_messages_that_took_nothing_change_no_time(rates: ServiceRates) -> None:
    rates.note("classify", 10, {"runners": 2.0})
    rates.note("classify", 10, {})
    assert rates.news() == {"classify": 10}
