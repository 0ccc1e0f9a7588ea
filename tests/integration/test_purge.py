"""Deleting what holds a ticket: from every place, in every form that a message can have."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from kombu.compression import compress

from tests.places import QUEUES, TTL_S, fragile_worker, hold, kill, send
from worker import keys
from worker.ledger import Commit, Ledger
from worker.ops import envelopes, jobs, purge

if TYPE_CHECKING:
    import redis
    from celery import Celery


@pytest.fixture(autouse=True)
def empty(client: redis.Redis) -> None:
    client.flushall()


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    return fragile_worker(client)


def test_results_of_a_prefix_go_and_their_ids_are_new_again(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    names = ["night*1", "night*2", "nightly", "other"]
    for name in names:
        send(app, task_id=name)
    ledger.commit([Commit(one.held, [(keys.RESULT_PREFIX + one.held.task_id, "{}", TTL_S)]) for one in hold(ledger)])

    assert purge.purge_results(client, "night*") == 2

    kept = {name for name in names if client.exists(keys.RESULT_PREFIX + name)}
    assert kept == {"nightly", "other"}
    assert kept == {name for name in names if client.exists(keys.JOB_PREFIX + name)}


def test_a_ticket_is_purged_from_every_place(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    done = {"status": "SUCCESS", "result": {"results": [{"id": "T-1", "label": "billing"}]}}
    refused = {"status": "FAILURE", "result": {"exc_message": ["duplicate_id: [0] and [1] both have the id 'T-1'"]}}
    client.set(keys.RESULT_PREFIX + "done", json.dumps(done))
    client.set(keys.RESULT_PREFIX + "refused", json.dumps(refused))
    client.set(keys.RESULT_PREFIX + "neighbour", json.dumps(done).replace("T-1", "T-11"))
    send(app, "T-0", "T-1", task_id="dead")
    kill(ledger, *hold(ledger))
    client.lpush(
        keys.unreadable("classify"), b"not a message, but of T-1", base64.b64encode(b"xx" + b'of T-1 too: {"}')
    )
    send(app, "T-1", task_id="waiting", priority=9)
    send(app, "T-2", task_id="neighbour-waiting")
    send(app, "T-1", task_id="squeezed", compression="gzip")

    purged = purge.purge_ticket(client, QUEUES, "T-1", TTL_S)

    assert purged == purge.Purged(queued=2, dead_letters=1, unreadable=2, results=2, held=0)
    assert purge.purge_ticket(client, QUEUES, "T-1", TTL_S) == purge.Purged(0, 0, 0, 0, 0)
    assert client.exists(keys.RESULT_PREFIX + "neighbour")
    assert [one.task_id for one in jobs.waiting(client, "classify", 10)] == ["neighbour-waiting"]
    assert app.AsyncResult("waiting").state == app.AsyncResult("squeezed").state == "REVOKED"


def test_what_a_worker_holds_is_left_and_counted_until_it_has_ended(
    client: redis.Redis, app: Celery, ledger: Ledger
) -> None:
    send(app, "T-1")
    (drained,) = hold(ledger)
    assert purge.purge_ticket(client, QUEUES, "T-1", TTL_S) == purge.Purged(0, 0, 0, 0, held=1)
    done = json.dumps({"status": "SUCCESS", "result": {"results": [{"id": "T-1"}]}})
    ledger.commit([Commit(drained.held, [(keys.RESULT_PREFIX + "job", done, TTL_S)])])
    assert purge.purge_ticket(client, QUEUES, "T-1", TTL_S) == purge.Purged(0, 0, 0, results=1, held=0)


def test_an_id_beyond_ascii_is_found_however_it_is_written(client: redis.Redis) -> None:
    for number, ascii_only in enumerate((True, False)):
        result = {"status": "SUCCESS", "result": {"results": [{"id": "Fall-Ä"}]}}
        client.set(f"{keys.RESULT_PREFIX}{number}", json.dumps(result, ensure_ascii=ascii_only))
    assert purge.purge_ticket(client, QUEUES, "Fall-Ä", TTL_S).results == 2


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff\xfe", b"[]", b'{"no": "body"}', b"[" * 100_000, b'{"body": 1, "headers": 2, "properties": 3}'],
)
def test_bytes_that_are_no_message_hold_nothing_and_break_nothing(message: bytes) -> None:
    assert envelopes.body(message) in (None, 1)
    assert not envelopes.holds_ticket(message, "T-1")
    assert not envelopes.mentions(message, "T-1")


def test_a_body_is_read_in_every_encoding_that_celery_writes() -> None:
    body = json.dumps([[], {"tickets": [{"id": "T-1"}]}, {}]).encode()
    plain = {"body": body.decode(), "headers": {}, "properties": {}}
    coded = {**plain, "body": base64.b64encode(body).decode(), "properties": {"body_encoding": "base64"}}
    small, name = compress(body, "gzip")
    squeezed = coded | {"body": base64.b64encode(small).decode(), "headers": {"compression": name}}
    broken = coded | {"body": "!"}
    found = [envelopes.holds_ticket(json.dumps(one).encode(), "T-1") for one in (plain, coded, squeezed, broken)]
    assert found == [True, True, True, False]
