"""Every way that Celery has to send a message: priorities, protocols, compression; results kept, ignored, forgotten."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from schemas.errors import MessageError
from schemas.results import ClassifyResult
from tests.messages import GOOD_KWARGS, QUEUE, body_of, labels, message, outcome, push, refusal
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from celery import Celery
    from celery.result import AsyncResult

    from tests.services import WorkerProcess

WAIT_S = 20
RESULT_TTL_S = 1234


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(result_ttl_s=RESULT_TTL_S)


def send(app: Celery, **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    return app.send_task("classify.tickets", kwargs=GOOD_KWARGS, queue=QUEUE, **options)


@pytest.mark.parametrize("priority", range(10))
def test_every_priority_is_served(app: Celery, priority: int) -> None:
    assert send(app, priority=priority).get(timeout=WAIT_S)["results"][0]["label"]


@pytest.mark.parametrize("priority", [-1, 10, 255])
def test_another_priority_is_refused(app: Celery, client: redis.Redis, priority: int) -> None:
    assert refusal(client, send(app, priority=priority).id).startswith("priority_out_of_range: ")


@pytest.mark.parametrize("priority", ["5", True, 5.0, [5]], ids=repr)
def test_a_priority_of_another_type_is_refused(client: redis.Redis, priority: object) -> None:
    written = message(properties={"priority": priority})
    push(client, written)

    assert refusal(client, written["headers"]["id"]).startswith("priority_out_of_range: ")


def test_an_ignored_result_is_not_stored(app: Celery, client: redis.Redis) -> None:
    ignored, kept = send(app, ignore_result=True), send(app)

    assert kept.get(timeout=WAIT_S)
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0 == client.llen(QUEUE), what="both acknowledged")
    assert not client.exists(f"celery-task-meta-{ignored.id}")


def test_a_result_lives_as_long_as_the_settings_say(app: Celery, client: redis.Redis) -> None:
    succeeded, failed = send(app), app.send_task("classify.tickets", kwargs={}, queue=QUEUE)

    for sent in (succeeded, failed):
        outcome(client, sent.id)
        assert RESULT_TTL_S - 60 < client.ttl(f"celery-task-meta-{sent.id}") <= RESULT_TTL_S


def test_a_forgotten_result_is_gone(app: Celery, client: redis.Redis) -> None:
    sent = send(app)
    sent.get(timeout=WAIT_S)

    sent.forget()

    assert not client.exists(f"celery-task-meta-{sent.id}")


def test_waiting_for_a_result_is_no_polling(app: Celery) -> None:
    started_s = time.monotonic()
    for _ in range(20):
        send(app).get(timeout=WAIT_S)

    assert time.monotonic() - started_s < 20 * 0.2  # the result is published; a poll would take half a second


@pytest.mark.parametrize("compression", ["gzip", "bzip2"])
def test_a_compressed_message_is_read(app: Celery, compression: str) -> None:
    assert send(app, compression=compression).get(timeout=WAIT_S)["results"][0]["label"]


@pytest.fixture
def old_app(app: Celery) -> Celery:
    app.conf.task_protocol = 1
    return app


def test_a_message_of_protocol_1_is_read(old_app: Celery) -> None:
    assert send(old_app).get(timeout=WAIT_S)["results"][0]["label"]


@pytest.mark.parametrize(
    ("task", "kwargs", "code"),
    [
        ("classify.tickets", {"tickets": []}, "no_tickets"),
        ("classify.everything", GOOD_KWARGS, "unknown_task"),
        ("classify.tickets", ["a list"], "invalid_message"),
    ],
    ids=["no tickets", "unknown task", "kwargs are a list"],
)
def test_a_wrong_message_of_protocol_1_fails_under_its_id(
    client: redis.Redis, task: str, kwargs: object, code: str
) -> None:
    task_id = str(uuid4())
    body = json.dumps({"task": task, "id": task_id, "args": [], "kwargs": kwargs})
    written = message(body)
    written["headers"] = {}
    push(client, written)

    assert refusal(client, task_id).startswith(f"{code}: ")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(message, id="with everything"),
        pytest.param(lambda: message(properties={"delivery_info": {}}), id="without exchange"),
        pytest.param(lambda: message(properties={"delivery_info": None, "delivery_tag": None}), id="with nulls"),
        pytest.param(
            lambda: {
                "headers": {"task": "classify.tickets", "id": str(uuid4())},
                "content-type": "application/json",
                "body": body_of(),
            },
            id="headers and a plain body",
        ),
    ],
)
def test_a_message_written_by_hand_gets_the_same_label(
    app: Celery, client: redis.Redis, entry: Callable[[], dict[str, Any]]
) -> None:
    written = entry()
    push(client, written)

    assert labels(client, written["headers"]["id"]) == [send(app).get(timeout=WAIT_S)["results"][0]["label"]]


@pytest.mark.parametrize(
    ("stated", "is_lower_bound"),
    [
        (lambda: time.time() - 100, False),
        (lambda: time.time() + 100, False),
        (lambda: "yesterday", True),
        (lambda: True, True),
        (lambda: float("inf"), True),
        (lambda: float("nan"), True),
        (lambda: 10**400, True),
        (lambda: -1, True),
        (lambda: time.time() * 1000, True),
        (lambda: None, True),
    ],
    ids=["past", "future", "text", "bool", "inf", "nan", "huge", "negative", "milliseconds", "null"],
)
def test_the_queue_wait_counts_from_enqueued_at_where_that_is_a_time(
    app: Celery,
    stated: Callable[[], object],
    is_lower_bound: bool,  # noqa: FBT001 - an expectation
) -> None:
    sent = send(app, headers={"enqueued_at": stated()})

    timings = ClassifyResult.model_validate(sent.get(timeout=WAIT_S)).timings
    assert timings.queue_wait_is_lower_bound is is_lower_bound
    assert timings.queue_wait_s < 200


def test_a_long_wait_is_reported(app: Celery) -> None:
    sent = send(app, headers={"enqueued_at": time.time() - 100})

    assert 99 < sent.get(timeout=WAIT_S)["timings"]["queue_wait_s"] < 120


def test_a_producer_with_the_contract_installed_gets_the_typed_error(app: Celery) -> None:
    sent = app.send_task("classify.tickets", kwargs={"tickets": []}, queue=QUEUE)

    error = sent.get(timeout=WAIT_S, propagate=False)
    assert isinstance(error, MessageError)
    assert error.code == "no_tickets"


def test_the_same_id_twice_gives_one_result(app: Celery) -> None:
    task_id = str(uuid4())
    first, second = send(app, task_id=task_id), send(app, task_id=task_id)

    assert first.get(timeout=WAIT_S)["results"] == second.get(timeout=WAIT_S)["results"]


def test_all_of_this_leaves_nothing_unacknowledged(client: redis.Redis, worker: WorkerProcess) -> None:
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0, what="nothing unacknowledged")
    assert worker.process.poll() is None
