"""How fast a worker is, by what its units occupied and of how many a message consists."""

from __future__ import annotations

import pytest

from worker.rates import ENOUGH_S, HALF_LIFE_S, MESSAGES, ServiceRates


@pytest.fixture
def rates() -> ServiceRates:
    """Of two queues whose messages are of one unit."""
    made = ServiceRates()
    for queue in ("classify", "bulk"):
        made.opened(queue, 1, 1)
    return made


def test_the_resource_that_is_occupied_most_decides(rates: ServiceRates) -> None:
    rates.done("classify", 100, {"runners": 2.0, "finisher": 0.5})
    rates.done("bulk", 1, {"runners": 30.0, "slots": 40.0})
    assert rates.news() == pytest.approx({"classify": 50, "bulk": 0.025})


def test_queues_of_one_worker_count_for_themselves(rates: ServiceRates) -> None:
    for _ in range(20):
        rates.done("classify", 10, {"runners": 0.1})
        rates.done("bulk", 1, {"runners": 2.0})
    assert rates.news() == pytest.approx({"classify": 100, "bulk": 0.5}, rel=0.02)


def test_only_queues_with_something_new_are_told(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}
    assert rates.news() == {}
    rates.done("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}


def test_too_little_is_no_rate(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.done("bulk", 0, {"runners": 60.0})  # time, and nothing done yet
    rates.done("ocr", 5, {"runners": 60.0})  # done, and nobody knows of what a message consists
    assert rates.news() == {}
    rates.done("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.done("bulk", 1, {"runners": 60.0})
    assert rates.news() == pytest.approx({"classify": 10 / 0.6, "bulk": 1 / 120}, rel=0.15)


def test_what_was_before_fades_with_busy_time(rates: ServiceRates) -> None:
    rates.done("classify", 1000, {"runners": 10.0})
    for _ in range(10):
        rates.done("classify", int(HALF_LIFE_S), {"runners": HALF_LIFE_S})
    assert rates.news() == pytest.approx({"classify": 1.0}, rel=0.01)


def test_units_that_took_nothing_change_no_time(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 2.0})
    rates.done("classify", 10, {})
    assert rates.news() == {"classify": 10}


def test_a_long_document_is_known_before_it_ends(rates: ServiceRates) -> None:
    rates.opened("ocr", 1, 200)
    rates.done("ocr", 10, {"runners": 10.0})
    assert rates.news() == pytest.approx({"ocr": 1 / 200})


def test_a_message_counts_as_the_mean_of_those_opened_lately(rates: ServiceRates) -> None:
    for _ in range(10):
        rates.opened("ocr", 1, 100)
    for _ in range(int(5 * MESSAGES)):
        rates.opened("ocr", 0.5, 1)  # of two documents of a page
        rates.opened("ocr", 0.5, 3)
    rates.done("ocr", 10, {"runners": 10.0})
    assert rates.news() == pytest.approx({"ocr": 1 / 4}, rel=0.05)
