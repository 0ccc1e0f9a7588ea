"""What is known of a run: parts in a store, messages as a real database holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from schemas.errors import ErrorCode, MessageError
from schemas.names import PRIORITY_BULK_SHARD, QUEUE_BULK, TASK_BULK_SHARD
from tasks.bulk.attempts import task_id
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import manifest_uri, success_uri
from tasks.bulk.state import Phase, RunState, Standing, look
from tasks.bulk.task import enqueue
from tests.bulk_runs import SHARD_ROWS, BulkRun, new_run
from worker import keys
from worker.ledger import Ledger, Terms
from worker.ops import jobs
from worker.ops.ends import ended, known
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery

TTL_S = 600


@pytest.fixture(autouse=True)
def empty(client: Redis) -> None:
    client.flushall()


@pytest.fixture
def run(tmp_path: Path) -> BulkRun:
    return new_run(LocalStore(), str(tmp_path), tmp_path / "drafts")


@pytest.fixture
def ledger(client: Redis) -> Ledger:
    """A worker that dies at the first crash of a message."""
    return Ledger(client, "alpha:host/1/aa", [QUEUE_BULK], Terms(max_crashes=1))


def send(app: Celery, shard: int, attempt: int = 0) -> str:
    name = task_id("run-1", shard, attempt)
    app.send_task(TASK_BULK_SHARD, kwargs={}, task_id=name, queue=QUEUE_BULK, priority=PRIORITY_BULK_SHARD)
    return name


def end(client: Redis, shard: int, attempt: int = 0, *, error: str | None = None) -> str:
    """Record an attempt's end, as a worker's commit does."""
    name = task_id("run-1", shard, attempt)
    failed = {"exc_type": "MessageError", "exc_message": [error], "exc_module": "schemas.errors"}
    meta = {"status": "FAILURE", "result": failed} if error else {"status": "SUCCESS", "result": {"shard": shard}}
    client.set(keys.RESULT_PREFIX + name, json.dumps(meta))
    client.set(keys.JOB_PREFIX + name, "D")
    return name


def standings(state: RunState) -> dict[int, Standing]:
    return {one.shard: one.standing for one in state.shards}


def test_a_shard_is_waiting_running_or_done_by_where_its_message_and_its_part_are(
    run: BulkRun, app: Celery, client: Redis, ledger: Ledger
) -> None:
    send(app, 1)
    ledger.drain(1)
    send(app, 2)
    run.finish(0)

    state = look(run.store, run.plan, client)

    assert standings(state) == {1: Standing.RUNNING, 2: Standing.WAITING}
    assert (state.done, state.rows_done, state.phase) == ({0}, SHARD_ROWS, Phase.RUNNING)


def test_a_failed_shard_says_why_until_another_attempt_is_sent(run: BulkRun, app: Celery, client: Redis) -> None:
    run.finish(0)
    end(client, 1, error="input_changed: in.parquet: the file is gone")
    send(app, 2)

    failed, waiting = look(run.store, run.plan, client).shards

    assert (failed.standing, failed.code, failed.task_id) == (Standing.FAILED, "input_changed", task_id("run-1", 1, 0))
    assert failed.error == "input_changed: in.parquet: the file is gone"
    assert waiting.is_open
    send(app, 1, attempt=1)
    assert standings(look(run.store, run.plan, client)) == {1: Standing.WAITING, 2: Standing.WAITING}


def test_the_last_of_many_attempts_says_why(run: BulkRun, client: Redis) -> None:
    for attempt in range(3):
        end(client, 0, attempt, error=f"store_unavailable: try {attempt}")

    (first, *_) = look(run.store, run.plan, client).shards

    assert first.error == "store_unavailable: try 2"


def test_a_message_that_killed_its_worker_is_dead(run: BulkRun, app: Celery, client: Redis, ledger: Ledger) -> None:
    send(app, 0)
    ledger.mark_running("runner-0", [one.held.tag for one in ledger.drain(1)])
    ledger.sweep(former=ledger.incarnation)

    state = look(run.store, run.plan, client)

    assert standings(state)[0] is Standing.DEAD
    assert state.phase is Phase.FAILED


def test_what_is_called_off_is_cancelled_at_once_and_after_a_worker_has_seen_it(
    run: BulkRun, app: Celery, client: Redis, ledger: Ledger
) -> None:
    names = [send(app, shard) for shard in range(3)]
    jobs.cancel(client, names, TTL_S)

    for _ in range(2):
        state = look(run.store, run.plan, client)
        assert set(standings(state).values()) == {Standing.CANCELLED}
        assert state.phase is Phase.CANCELLED
        ledger.drain(10)


def test_a_message_that_is_given_back_or_is_to_be_retried_still_waits(
    run: BulkRun, app: Celery, client: Redis, ledger: Ledger
) -> None:
    given_back, retried = send(app, 0), task_id("run-1", 1, 0)
    ledger.drain(1)
    ledger.sweep(former=ledger.incarnation, blame=False)
    client.set(keys.JOB_PREFIX + retried, "R tag 0")
    client.set(keys.RESULT_PREFIX + retried, json.dumps({"status": "RETRY", "result": None}))

    state = look(run.store, run.plan, client)

    assert standings(state) == {0: Standing.WAITING, 1: Standing.WAITING, 2: Standing.LOST}
    assert ended(client, [given_back, retried]) == frozenset()


def test_shards_of_which_nobody_knows_are_lost_and_the_run_stalls(run: BulkRun, client: Redis) -> None:
    end(client, 1)  # and its part was deleted

    state = look(run.store, run.plan, client)

    assert set(standings(state).values()) == {Standing.LOST}
    assert state.phase is Phase.STALLED


def test_a_run_goes_on_while_its_planner_has_not_sent_its_shards(run: BulkRun, client: Redis) -> None:
    client.set(keys.JOB_PREFIX + run.plan.job_id, "H alpha:host/1/aa:1 bulk tag 0")

    assert look(run.store, run.plan, client).phase is Phase.RUNNING


def test_a_part_that_came_after_the_listing_counts(run: BulkRun, client: Redis) -> None:
    class Late(LocalStore):
        def list(self, uri: str) -> list[object]:  # type: ignore[override] # it lists nothing
            found = super().list(uri)
            run.finish_all()
            return found

    for shard in range(3):
        end(client, shard)

    state = look(Late(), run.plan, client)

    assert (state.done, state.shards) == ({0, 1, 2}, ())


def test_a_finished_run_needs_no_database(run: BulkRun) -> None:
    run.finish_all()
    finalise(run.store, run.plan)

    state = look(run.store, run.plan, Redis(port=1))

    assert state.phase is Phase.FINISHED
    assert state.manifest is not None


def test_a_run_that_was_refused_at_its_end_says_why(run: BulkRun, client: Redis, app: Celery) -> None:
    run.finish_all()
    end(client, 0)
    end(client, 1)
    name = send(app, 2)
    client.set(keys.JOB_PREFIX + name, "H alpha:host/1/aa:1 bulk tag 0")

    assert look(run.store, run.plan, client).phase is Phase.RUNNING, "the last one is about to write the manifest"
    end(client, 2, error="too_many_rejected: 90 of 120 rows have an error")

    state = look(run.store, run.plan, client)
    assert (len(state.done), state.phase) == (3, Phase.FAILED)
    assert [one.code for one in state.shards] == ["too_many_rejected"]


def test_a_manifest_alone_is_no_end(run: BulkRun, client: Redis) -> None:
    run.finish_all()
    finalise(run.store, run.plan)
    run.store.delete(success_uri(run.output))

    assert look(run.store, run.plan, client).phase is Phase.STALLED


def test_the_manifest_of_another_run_is_an_error(run: BulkRun, client: Redis) -> None:
    run.finish_all()
    manifest = finalise(run.store, run.plan).manifest
    assert manifest is not None
    other = manifest.model_copy(update={"plan_key": "0" * 64})
    run.store.put_bytes(manifest_uri(run.output), other.model_dump_json().encode())

    with pytest.raises(MessageError) as refused:
        look(run.store, run.plan, client)
    assert refused.value.code is ErrorCode.OUTPUT_IN_USE


def test_resuming_sends_an_ended_shard_again_under_its_next_attempt(run: BulkRun, app: Celery, client: Redis) -> None:
    end(client, 0, error="out_of_space: the disk is full")
    send(app, 1)

    sent = [enqueue(app, run.plan, [0, 1]) for _ in range(2)]

    assert sent == [[task_id("run-1", 0, 1), task_id("run-1", 1, 0)]] * 2, "two at once send the same"


def test_waiting_messages_are_found_in_every_list_whatever_their_number(app: Celery, client: Redis) -> None:
    names = {send(app, shard) for shard in range(jobs.AT_ONCE + 5)}
    app.send_task("bulk.classify", kwargs={}, task_id="urgent", queue=QUEUE_BULK)

    assert jobs.waiting_ids(client, QUEUE_BULK) == names | {"urgent"}


def test_a_message_in_an_inbox_waits(app: Celery, client: Redis, ledger: Ledger) -> None:
    ledger.open_inboxes([QUEUE_BULK])
    name = send(app, 0)
    bulk_list = keys.lists(QUEUE_BULK)[2]
    client.lmove(bulk_list, keys.inbox(ledger.incarnation, bulk_list))

    assert jobs.waiting_ids(client, QUEUE_BULK) == {name}


def test_many_ids_are_asked_for_in_portions(client: Redis) -> None:
    names = [end(client, shard, error="internal: x") for shard in range(1_201)]

    found = known(client, [*names, "never"])

    assert {found[name].error for name in names} == {"internal: x"}
    assert not found["never"].is_over
