"""Looking into the queues and mending them: over a real server, in every place that a message can be in."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.places import QUEUES, TTL_S, fragile_worker, hold, kill, send
from worker import keys
from worker.ledger import Commit, Ledger, Terms
from worker.ops import dead, jobs
from worker.ops.queues import QueueState, survey

if TYPE_CHECKING:
    import redis
    from celery import Celery


@pytest.fixture(autouse=True)
def empty(client: redis.Redis) -> None:
    client.flushall()


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    return fragile_worker(client)


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
    assert (worker.loads, queue.load) == ({}, (0, 0, 0))
    assert worker.silent_s < 5


def test_a_queue_has_the_load_of_its_live_workers(client: redis.Redis, ledger: Ledger) -> None:
    ledger.renew([], loads={"classify": (0.5, 0.0, 0.25), "bulk": (0.0, 0.0, 0.75)})
    other = Ledger(client, "other:host/1/1/aa", QUEUES, Terms())
    other.renew([], loads={"classify": (1.0, 0.0, 0.0)})
    silent = Ledger(client, "silent:host/1/1/aa", QUEUES, Terms())
    silent.renew([], loads={"classify": (1.0, 1.0, 1.0)})
    client.zadd(keys.WORKERS, {"silent:host/1/1/aa": client.time()[0] - 20})  # what it held waits again
    seen = survey(client, [*QUEUES, "bulk"], lease_s=12.0)
    assert {queue.queue: queue.load for queue in seen.queues} == {"classify": (1.5, 0, 0.25), "bulk": (0, 0, 0.75)}
    assert {worker.incarnation: worker.loads.get("bulk") for worker in seen.workers} == {
        ledger.incarnation: (0, 0, 0.75),
        other.incarnation: None,
        silent.incarnation: None,
    }


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
