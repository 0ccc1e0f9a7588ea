"""Revoke, expiry, ETA and the inspect commands work as in stock Celery, also while a job waits for its batch."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery.exceptions import TaskRevokedError

from tests.events import recording
from tests.integration.extra_tasks import COMMAND
from tests.messages import GOOD_KWARGS, QUEUE
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from celery import Celery
    from celery.result import AsyncResult

    from tests.services import WorkerProcess

WAIT_S = 20
BATCH_TIMEOUT_S = 3


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=COMMAND, batch_timeout_s=BATCH_TIMEOUT_S)


def send(app: Celery, text: str = "my card", **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    tickets = [{"id": "1", "text": text}]
    return app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue=QUEUE, **options)


def asked(app: Celery, command: str, *args: object) -> Any:  # noqa: ANN401 - JSON
    """Return what the one worker answers."""
    inspect = app.control.inspect(limit=1, timeout=WAIT_S)
    return next(iter(getattr(inspect, command)(*args).values()))


def ids(requests: list[dict[str, Any]]) -> set[str]:
    return {request["id"] for request in requests}


@contextmanager
def busy_worker(app: Celery) -> Iterator[AsyncResult]:
    """Keep the only runner busy inside the block, for at most the batch timeout; give the job that does it."""
    hanging = send(app, "endless")
    wait_until(lambda: hanging.id in ids(asked(app, "active")), what="the hanging job runs")
    yield hanging
    wait_until(hanging.ready, what="the hanging job ends")


def test_a_revoke_before_the_worker_has_it_holds(app: Celery) -> None:
    with recording(app) as recorder:
        app.control.revoke("known-beforehand", reply=True, timeout=WAIT_S, limit=1)
        sent = send(app, task_id="known-beforehand")

        with pytest.raises(TaskRevokedError):
            sent.get(timeout=WAIT_S)
        wait_until(lambda: "task-revoked" in recorder.of_task(sent.id), what="task-revoked")
    assert "task-started" not in recorder.of_task(sent.id)


@pytest.mark.parametrize("terminate", [False, True], ids=["revoke", "terminate"])
def test_a_revoke_while_it_waits_for_its_batch_holds(app: Celery, terminate: bool) -> None:  # noqa: FBT001 - a case
    with recording(app) as recorder:
        with busy_worker(app):
            waiting, neighbour = send(app), send(app)
            wait_until(lambda: {waiting.id, neighbour.id} <= ids(asked(app, "reserved")), what="both wait")
            app.control.revoke(waiting.id, terminate=terminate, reply=True, timeout=WAIT_S, limit=1)

        with pytest.raises(TaskRevokedError):
            waiting.get(timeout=WAIT_S)
        assert neighbour.get(timeout=WAIT_S)["results"][0]["label"]
        wait_until(lambda: "task-revoked" in recorder.of_task(waiting.id), what="task-revoked")
    assert recorder.of_task(waiting.id) == ["task-received", "task-revoked"]


def test_a_terminated_running_job_has_one_end(app: Celery, client: redis.Redis) -> None:
    with recording(app) as recorder:
        with busy_worker(app) as running:
            app.control.revoke(running.id, terminate=True, reply=True, timeout=WAIT_S, limit=1)
        assert send(app).get(timeout=WAIT_S)["results"][0]["label"]

        wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0, what="nothing unacknowledged")
        assert running.state == "REVOKED"
        assert recorder.of_task(running.id) == ["task-received", "task-started", "task-revoked"]


def test_it_expires_while_it_waits_for_its_batch(app: Celery) -> None:
    with recording(app) as recorder:
        with busy_worker(app):
            waiting, patient = send(app, expires=1), send(app, expires=60)

        with pytest.raises(TaskRevokedError, match="expired"):
            waiting.get(timeout=WAIT_S)
        assert patient.get(timeout=WAIT_S)["results"][0]["label"]
        wait_until(lambda: "task-revoked" in recorder.of_task(waiting.id), what="task-revoked")
    assert recorder.of_task(waiting.id) == ["task-received", "task-revoked"]


def test_it_expires_while_it_waits_in_the_queue(app: Celery) -> None:
    sent = send(app, expires=datetime.now(UTC) - timedelta(seconds=5))

    with pytest.raises(TaskRevokedError, match="expired"):
        sent.get(timeout=WAIT_S)


def test_a_countdown_is_kept(app: Celery) -> None:
    started_s = time.monotonic()
    sent = send(app, countdown=1.0)

    wait_until(lambda: sent.id in {one["request"]["id"] for one in asked(app, "scheduled")}, what="it is scheduled")
    assert sent.get(timeout=WAIT_S)["results"][0]["label"]
    assert time.monotonic() - started_s > 0.9


def test_inspect_shows_waiting_and_running_jobs_without_arguments(app: Celery) -> None:
    with busy_worker(app) as running:
        waiting = send(app)
        wait_until(lambda: waiting.id in ids(asked(app, "reserved")), what="it waits")
        found = asked(app, "query_task", running.id, waiting.id, "unknown")
        active = next(one for one in asked(app, "active") if one["id"] == running.id)

    assert {task_id: state for task_id, (state, _) in found.items()} == {running.id: "active", waiting.id: "reserved"}
    assert active["name"] == "classify.tickets"
    assert active["acknowledged"] is False
    assert active["args"] == active["kwargs"] == "<hidden>"
    assert waiting.get(timeout=WAIT_S)


def test_nothing_is_active_once_all_is_done(app: Celery) -> None:
    send(app).get(timeout=WAIT_S)

    wait_until(lambda: not asked(app, "active") and not asked(app, "reserved"), what="nothing in hand")


def test_stats_count_what_the_engine_did(app: Celery) -> None:
    before = asked(app, "stats")["pool"]["engine"]
    tickets = [{"id": str(number), "text": f"my card {number}"} for number in range(5)]
    app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify").get(timeout=WAIT_S)
    after = asked(app, "stats")["pool"]["engine"]

    assert after["items"] - before["items"] == 5
    assert after["batches"] > before["batches"]
    assert after["padded_tokens"] >= after["real_tokens"] > before["real_tokens"]
    assert asked(app, "stats")["pool"]["implementation"] == "worker.pool:BatchPool"


def test_it_answers_ping_and_names_its_tasks(app: Celery) -> None:
    assert asked(app, "ping") == {"ok": "pong"}
    assert "classify.tickets" in asked(app, "registered")
    assert [queue["name"] for queue in asked(app, "active_queues")] == ["classify", "bulk"]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("pool_grow", {"n": 1}), ("pool_shrink", {"n": 1}), ("pool_restart", {}), ("autoscale", {"max": 5, "min": 1})],
)
def test_a_command_that_the_pool_cannot_carry_out_is_answered_with_an_error(
    app: Celery, command: str, arguments: dict[str, int]
) -> None:
    ((_, answer),) = app.control.broadcast(command, arguments, reply=True, timeout=WAIT_S, limit=1)[0].items()

    assert "error" in answer
    assert send(app).get(timeout=WAIT_S)["results"][0]["label"]


def test_it_consumes_a_queue_that_is_added(app: Celery) -> None:
    app.control.broadcast("add_consumer", {"queue": "other"}, reply=True, timeout=WAIT_S, limit=1)
    sent = app.send_task("classify.tickets", kwargs=GOOD_KWARGS, queue="other")

    assert sent.get(timeout=WAIT_S)["results"][0]["label"]
    app.control.cancel_consumer("other", reply=True, timeout=WAIT_S, limit=1)


def test_a_rate_limit_on_the_task_is_kept(app: Celery) -> None:
    app.control.rate_limit("classify.tickets", "4/s", reply=True, timeout=WAIT_S, limit=1)
    try:
        started_s = time.monotonic()
        for sent in [send(app) for _ in range(4)]:
            sent.get(timeout=WAIT_S)
        assert time.monotonic() - started_s > 0.6
    finally:
        app.control.rate_limit("classify.tickets", "0", reply=True, timeout=WAIT_S, limit=1)


def test_all_of_this_leaves_nothing_unacknowledged(client: redis.Redis, worker: WorkerProcess) -> None:
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0, what="nothing unacknowledged")
    assert worker.process.poll() is None
