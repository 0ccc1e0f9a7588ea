"""Marks are written when they change, again while they last, and at once where a suspect runs alone."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

import pytest

from tests.services import wait_until
from worker import keys, marking
from worker.ledger import Ledger, Terms
from worker.marking import Marker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis


@pytest.fixture
def marker(client: redis.Redis) -> Iterator[Marker]:
    client.flushall()
    client.config_resetstat()
    made = Marker(Ledger(client, "worker:boot", ["classify"], Terms()))
    yield made
    made._forget()  # noqa: SLF001 - a thread's marker ends with its process


def marks(client: redis.Redis) -> int:
    found = client.info("commandstats").get("cmdstat_hset", {"calls": 0})
    return int(found["calls"])


def marked(client: redis.Redis) -> bytes:
    (value,) = client.hvals(keys.RUNNING)
    return bytes(value)


def test_a_mark_that_does_not_change_is_sent_once(marker: Marker, client: redis.Redis) -> None:
    for _ in range(5):
        marker.mark(["a", "b"], wait=False)
    marker.mark([], wait=True)

    assert marks(client) == 2
    assert marked(client) == b""


def test_every_change_is_sent(marker: Marker, client: redis.Redis) -> None:
    for tag in ("a", "b", "a"):
        marker.mark([tag], wait=False)

    wait_until(lambda: marks(client) == 3)
    assert marked(client) == b"a"


def test_a_mark_that_lasts_is_repeated_for_a_server_that_has_forgotten_it(
    marker: Marker, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marking, "LOOK_EVERY_S", 0.05)
    marker.mark(["a"], wait=False)
    wait_until(lambda: marks(client) == 1)
    client.flushall()
    sleep(0.06)

    marker.mark(["a"], wait=False)

    wait_until(lambda: client.hvals(keys.RUNNING) == [b"a"])


def test_around_a_suspect_every_mark_is_written_before_it_goes_on(marker: Marker, client: redis.Redis) -> None:
    for _ in range(2):
        marker.mark(["suspect"], wait=True)
        assert marked(client) == b"suspect"
    assert marks(client) == 2
