"""What the workers of a queue make of its rate together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.names import Band
from tests.telling import news
from worker.ops.simulation.shared_rate import LATELY, Lately, SharedRate


@pytest.fixture
def usual() -> SharedRate:
    """As workers leave it that opened thousands of messages of two units."""
    return SharedRate(10.0, Lately(2 * LATELY, LATELY), [Lately(2 * LATELY, LATELY), Lately(), Lately()])


def test_nobody_knows_a_rate_before_something_was_opened_and_something_done() -> None:
    shared = SharedRate()

    shared.learn(news(10.0))
    assert shared.messages_per_s is None
    shared.learn(news(messages=2, units=10))
    assert shared.messages_per_s == pytest.approx(10 / 5)


def test_messages_without_units_alone_make_no_rate() -> None:
    shared = SharedRate(10.0)

    shared.learn(news(messages=3, units=0))
    assert shared.messages_per_s is None
    assert shared.sizes == (1, 1, 1)


def test_each_worker_moves_the_pace_a_fifth_of_the_way(usual: SharedRate) -> None:
    usual.learn(news(5.0))

    assert usual.units_per_s == pytest.approx(9.0)
    assert usual.messages_per_s == pytest.approx(4.5)


def test_a_message_moves_the_size_a_fiftieth_of_the_way_whoever_opens_it(usual: SharedRate) -> None:
    usual.learn(news(messages=1, units=102))

    assert usual.all.size == pytest.approx(4.0)
    usual.learn(news(messages=3, units=300))
    assert usual.all.size == pytest.approx(100 - 96 * (1 - 1 / LATELY) ** 3)


def test_a_message_is_told_by_its_parts(usual: SharedRate) -> None:
    whole = replace(usual.all)
    whole.open(1, 8)

    for _ in range(4):
        usual.learn(news(messages=0.25, units=2))
    assert (usual.all.units, usual.all.messages) == pytest.approx((whole.units, whole.messages))


def test_the_first_messages_count_alike() -> None:
    """Else a queue whose first message is a file of 500 pages would want a crowd for its first hundred letters."""
    shared = SharedRate()

    for units in (500, 2, 2, 2, 2):
        shared.learn(news(messages=1, units=units))
    assert shared.all.size == pytest.approx(508 / 5, rel=0.05)


def test_no_crowd_of_messages_weighs_more_than_the_last_fifty(usual: SharedRate) -> None:
    usual.learn(news(messages=2000, units=2000))
    usual.learn(news(messages=1, units=51))

    assert usual.all.messages == pytest.approx(LATELY)
    assert usual.all.size == pytest.approx(2.0)


def test_bulk_work_does_not_make_the_messages_of_people_larger(usual: SharedRate) -> None:
    usual.learn(news(messages=600, units=600_000, band=Band.BULK))

    assert usual.all.size == pytest.approx(1000, rel=0.01)
    assert usual.sizes == pytest.approx((0.002, 1.0, 1.0), rel=0.01)
