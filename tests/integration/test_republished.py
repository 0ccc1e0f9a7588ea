"""A retry inherits its job's claim: a doubled message that was not taken before cannot run in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.messages import message
from worker import keys
from worker.ledger import Commit, Ledger, Terms

if TYPE_CHECKING:
    import redis


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    client.flushall()
    return Ledger(client, "alpha:host/1/aa", ["classify"], Terms())


def envelope(tag: str) -> str:
    return json.dumps(message(headers={"id": "job"}, properties={"correlation_id": "job", "delivery_tag": tag}))


def retry(ledger: Ledger, client: redis.Redis) -> None:
    """Take a job of which a double waits, and let it end with a retry."""
    client.lpush("classify", envelope("first"), envelope("double"))
    (drained,) = ledger.drain(1)
    assert ledger.commit([Commit(drained.held, (), [("classify", envelope("retry"))], republished=True)]) == [1]


def test_a_double_that_waited_is_dropped_and_the_retry_runs(ledger: Ledger, client: redis.Redis) -> None:
    retry(ledger, client)
    assert [one.held.tag for one in ledger.drain(10)] == ["retry"]
    assert client.llen("classify") == 0


def test_a_retry_that_comes_back_from_a_dead_worker_runs(ledger: Ledger, client: redis.Redis) -> None:
    retry(ledger, client)
    ledger.drain(10)
    ledger.sweep(former=ledger.incarnation)
    client.lpush("classify", envelope("double again"))
    assert [one.held.tag for one in ledger.drain(10)] == ["retry"]


def test_a_retry_that_ends_is_the_end_of_its_id(ledger: Ledger, client: redis.Redis) -> None:
    retry(ledger, client)
    (drained,) = ledger.drain(10)
    ledger.commit([Commit(drained.held)])
    client.lpush("classify", envelope("late"))
    assert ledger.drain(10) == []
    assert client.get(keys.JOB_PREFIX + "job") == b"D"
