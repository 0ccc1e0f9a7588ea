"""What workers tell of their queues becomes one rate in the database, whoever tells, and whatever was there."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from schemas.names import Band
from tests.telling import news
from worker import keys
from worker.ledger import Ledger, Terms
from worker.ops.scaling import Demand
from worker.ops.simulation.shared_rate import SharedRate
from worker.rates import News, relative_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

QUEUE: Final = "ocr"


class Telling:
    """Some workers of the same queues, and what the database says."""

    def __init__(self, client: redis.Redis, workers: int = 2) -> None:
        self.client = client
        self.workers = [Ledger(client, f"{number}:h/5/1/b", [QUEUE], Terms()) for number in range(workers)]

    def tell(self, worker: int, told: News, queue: str = QUEUE) -> None:
        self.workers[worker].renew([], {queue: told})

    @property
    def rate(self) -> float | None:
        found = self.client.hget(keys.SERVICE_RATES, QUEUE)
        return None if found is None else float(found)

    @property
    def sizes(self) -> tuple[float, ...]:
        return relative_sizes(QUEUE, self.client.hgetall(keys.MESSAGE_SIZES))


@pytest.fixture
def telling(client: redis.Redis) -> Iterator[Telling]:
    client.flushall()
    yield Telling(client)
    client.flushall()


def test_the_script_does_what_the_simulation_reckons_with(telling: Telling) -> None:
    rng = random.Random(1)  # noqa: S311 - test data
    reckoned = SharedRate()
    for _ in range(200):
        opened = rng.choice([0, 0, 1, 1 / 3, 4, 70])
        units = rng.randrange(300) if opened else 0
        told = news(rng.choice([None, rng.uniform(0.1, 500)]), opened, units, band=rng.choice(list(Band)))
        telling.tell(rng.randrange(2), told)
        reckoned.learn(told)
        assert telling.rate == (reckoned.messages_per_s and pytest.approx(reckoned.messages_per_s, rel=1e-4))
        assert telling.sizes == pytest.approx(reckoned.sizes, rel=1e-4)
    assert reckoned.messages_per_s is not None


def test_the_news_of_two_workers_end_in_one_size(telling: Telling) -> None:
    telling.tell(0, news(1.0, 500, 1000))  # letters
    telling.tell(1, news(1.0, 500, 1000))
    assert telling.rate == pytest.approx(1 / 2, rel=1e-4)
    for _ in range(25):  # half of a box of long files to each
        telling.tell(0, news(None, 1, 90))
        telling.tell(1, news(None, 1, 90))
    assert telling.rate == pytest.approx(1 / (90 - 88 * 0.98**50), rel=1e-4), "as if one had opened all 50"


def test_each_band_has_a_size_of_its_own(telling: Telling) -> None:
    telling.tell(0, news(1.0, 500, 1000, band=Band.INTERACTIVE))
    telling.tell(1, news(1.0, 600, 600_000, band=Band.BULK))
    assert telling.rate == pytest.approx(1 / 1000, rel=1e-3)
    assert telling.sizes == pytest.approx((0.002, 1, 1), rel=1e-3)


@pytest.mark.parametrize("refused", [1, 300, 1100, 60_000])
def test_messages_that_are_refused_do_not_hide_what_waits_in_another_band(telling: Telling, refused: int) -> None:
    telling.tell(0, news(10.0, 500, 500_000, band=Band.BULK))
    telling.tell(1, news(None, refused, 0, band=Band.INTERACTIVE))
    waiting_s = Demand((0, 0, 500), (0, 0, 0), 0, 2, telling.rate, telling.sizes).waiting_s()
    assert waiting_s == pytest.approx((0, 0, 500 * 1000 / 10), rel=1e-3)


def test_the_pace_moves_with_each_worker_that_tells_its_own(telling: Telling) -> None:
    telling.tell(0, news(100.0, 1, 1))
    telling.tell(0, news(0.02, 1, 1), queue="bulk")
    assert telling.client.hgetall(keys.SERVICE_RATES) == {QUEUE.encode(): b"100", b"bulk": b"0.02"}
    telling.tell(1, news(50.0))
    assert telling.rate == 90
    for _ in range(30):
        telling.tell(1, news(50.0))
    assert telling.rate == pytest.approx(50, rel=0.01)
    assert telling.client.hget(keys.SERVICE_RATES, "bulk") == b"0.02"


def test_the_rate_that_an_older_worker_stored_holds_until_a_newer_one_knows_better(telling: Telling) -> None:
    telling.client.hset(keys.SERVICE_RATES, QUEUE, "0.4")
    telling.tell(0, news(None, 4, 10))
    telling.tell(1, news())
    assert telling.rate == 0.4
    telling.tell(1, news(1.0))
    assert telling.rate == pytest.approx(1 / 2.5)


def test_an_older_worker_beside_a_newer_one_moves_the_rate_for_a_moment_only(telling: Telling) -> None:
    telling.tell(0, news(1.0, 50, 100))
    assert telling.rate == 0.5
    telling.client.hset(keys.SERVICE_RATES, QUEUE, "0.9")  # as it moves what it finds, in messages a second
    telling.tell(0, news(1.0))
    assert telling.rate == 0.5


@pytest.mark.parametrize("size", ["", "2.5", "2.5 one", "nan 50", "inf 50", "2 50 1", "- -"])
@pytest.mark.parametrize("pace", ["", "fast", "nan", "-inf", "1.5 2.5"])
def test_what_is_of_another_form_begins_anew(telling: Telling, size: str, pace: str) -> None:
    telling.client.hset(keys.MESSAGE_SIZES, QUEUE, size)
    telling.client.hset(keys.UNIT_RATES, QUEUE, pace)
    telling.tell(0, news(12.0, 2, 6))
    assert telling.rate == 4
