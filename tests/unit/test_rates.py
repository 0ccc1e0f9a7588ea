"""How fast a worker is, by what its units occupied, and what it tells of the messages that it opened."""

from __future__ import annotations

import pytest

from schemas.names import Band
from tests.telling import news
from worker.jobs import Charge
from worker.rates import ENOUGH_S, HALF_LIFE_S, News, Opened, ServiceRates, relative_sizes

SCANS = Charge("ocr", Band.INTERACTIVE)


@pytest.fixture
def rates() -> ServiceRates:
    return ServiceRates()


def paces(rates: ServiceRates) -> dict[str, float]:
    """Return what is new of the units a second, by queue."""
    return {queue: news.units_per_s for queue, news in rates.news().items() if news.units_per_s is not None}


def test_the_resource_that_is_occupied_most_decides(rates: ServiceRates) -> None:
    rates.done("classify", 100, {"runners": 2.0, "finisher": 0.5})
    rates.done("bulk", 1, {"runners": 30.0, "slots": 40.0})
    assert paces(rates) == pytest.approx({"classify": 50, "bulk": 0.025})


def test_queues_of_one_worker_count_for_themselves(rates: ServiceRates) -> None:
    for _ in range(20):
        rates.done("classify", 10, {"runners": 0.1})
        rates.done("bulk", 1, {"runners": 2.0})
    assert paces(rates) == pytest.approx({"classify": 100, "bulk": 0.5}, rel=0.02)


def test_only_queues_with_something_new_are_told(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}
    assert rates.news() == {}
    rates.done("classify", 10, {"runners": 2.0})
    assert set(rates.news()) == {"classify"}


def test_too_little_is_no_rate(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.done("bulk", 0, {"runners": 60.0})  # time, and nothing done yet
    assert rates.news() == {}
    rates.done("classify", 10, {"runners": 0.6 * ENOUGH_S})
    rates.done("bulk", 1, {"runners": 60.0})
    assert paces(rates) == pytest.approx({"classify": 10 / 0.6, "bulk": 1 / 120}, rel=0.15)


def test_what_was_before_fades_with_busy_time(rates: ServiceRates) -> None:
    rates.done("classify", 1000, {"runners": 10.0})
    for _ in range(10):
        rates.done("classify", int(HALF_LIFE_S), {"runners": HALF_LIFE_S})
    assert paces(rates) == pytest.approx({"classify": 1.0}, rel=0.01)


def test_units_that_took_nothing_change_no_time(rates: ServiceRates) -> None:
    rates.done("classify", 10, {"runners": 2.0})
    rates.done("classify", 10, {})
    assert paces(rates) == {"classify": 10}


def test_what_was_opened_is_told_once_and_before_anything_got_done(rates: ServiceRates) -> None:
    rates.opened(SCANS, 1, 200)
    rates.opened(SCANS, 0.5, 1)  # of two documents
    rates.opened(SCANS, 0.5, 3)
    assert rates.news() == {"ocr": news(messages=2, units=204)}
    rates.done("ocr", 10, {"runners": 10.0})
    assert rates.news() == {"ocr": news(1.0)}


def test_what_was_opened_is_told_by_band(rates: ServiceRates) -> None:
    rates.opened(SCANS, 1, 2)
    rates.opened(Charge("ocr", Band.BULK), 1, 300)
    rates.opened(Charge("ocr", Band.BULK), 1, 100)
    assert rates.news() == {"ocr": News(None, (Opened(1, 2), Opened(), Opened(2, 400)))}


def test_messages_of_which_nothing_was_right_are_opened_too(rates: ServiceRates) -> None:
    rates.opened(SCANS, 1, 0)
    assert rates.news() == {"ocr": news(messages=1, units=0)}


def test_a_pace_is_not_told_again_when_a_message_is_opened(rates: ServiceRates) -> None:
    rates.done("ocr", 10, {"runners": 10.0})
    assert rates.news() == {"ocr": news(1.0)}
    rates.opened(SCANS, 1, 2)
    assert rates.news() == {"ocr": news(messages=1, units=2)}


def opened_of(**means: str) -> dict[bytes, bytes]:
    fields = {"all": "ocr", "people": "0 ocr", "bulk": "2 ocr", "others": "0 classify"}
    return {fields[name].encode(): text.encode() for name, text in means.items()}


@pytest.mark.parametrize(
    ("opened", "sizes"),
    [
        pytest.param({}, (1, 1, 1), id="nobody knows"),
        pytest.param(opened_of(all="500 50", people="100 50", bulk="1000 20"), (0.2, 1, 5), id="two bands"),
        pytest.param(opened_of(people="100 50", others="1 1"), (1, 1, 1), id="not the mean"),
        pytest.param(opened_of(all="500 50", people="100", bulk="nan 2"), (1, 1, 1), id="of another form"),
        pytest.param(opened_of(all="500 50", people="0 3", bulk="5 0"), (1, 1, 1), id="nothing in them"),
        pytest.param(opened_of(all="inf 50", people="1 1"), (1, 1, 1), id="endless"),
        pytest.param(opened_of(all="1e-306 50", people="1 1"), (1, 1, 1), id="almost all were refused"),
    ],
)
def test_the_size_of_a_band_is_told_in_that_of_all(opened: dict[bytes, bytes], sizes: tuple[float, ...]) -> None:
    assert relative_sizes("ocr", opened) == sizes
