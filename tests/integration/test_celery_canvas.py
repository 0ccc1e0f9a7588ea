"""Links, chains, groups, chords and retries around batched tasks are Celery's own."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from celery import chain, chord, group, signature
from celery.exceptions import ChordError
from celery.result import GroupResult

from tests.integration.extra_tasks import COMMAND
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from celery import Celery, Signature

    from tests.services import WorkerProcess

WAIT_S = 20


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=COMMAND)


@pytest.fixture
def key() -> str:
    return f"mark-{uuid4()}"


def classify(app: Celery, *texts: object, immutable: bool = True) -> Signature:
    tickets = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    return app.signature("classify.tickets", kwargs={"tickets": tickets}, queue="classify", immutable=immutable)


def invalid(app: Celery) -> Signature:
    return app.signature("classify.tickets", kwargs={"tickets": []}, queue="classify", immutable=True)


def extra(app: Celery, name: str, **kwargs: Any) -> Signature:  # noqa: ANN401 - JSON
    return app.signature(f"extra.{name}", kwargs=kwargs, queue="classify")


def marks(client: redis.Redis, key: str, count: int = 1) -> list[str]:
    wait_until(lambda: client.llen(key) >= count, WAIT_S, f"{count} marks")
    return [mark.decode() for mark in client.lrange(key, 0, -1)]


def test_a_link_gets_the_result(app: Celery, client: redis.Redis, key: str) -> None:
    sent = classify(app, "my card").apply_async(link=extra(app, "note", key=key))

    assert marks(client, key) == ["1"]
    assert sent.get(timeout=WAIT_S)["results"][0]["label"]
    assert [child.get(timeout=WAIT_S) for child in sent.children] == [None]


def test_every_link_of_several_runs_once(app: Celery, client: redis.Redis, key: str) -> None:
    classify(app, "my card").apply_async(link=[extra(app, "note", key=key), extra(app, "note", key=key)])

    assert marks(client, key, 2) == ["1", "1"]


def test_an_errback_of_three_arguments_gets_the_error(app: Celery, client: redis.Redis, key: str) -> None:
    sent = invalid(app).apply_async(link_error=extra(app, "note_failure", key=key))

    (mark,) = marks(client, key)
    assert mark.startswith(f"{sent.id} no_tickets: ")


def test_an_errback_of_another_service_gets_the_failed_id(app: Celery, client: redis.Redis, key: str) -> None:
    sent = invalid(app).apply_async(link_error=app.signature("other.alarm", queue=key))

    _, message = client.brpop([key], timeout=WAIT_S)
    args, _, _ = json.loads(base64.b64decode(json.loads(message)["body"]))
    assert args == [sent.id]


def test_a_link_does_not_run_after_a_failure(app: Celery, client: redis.Redis, key: str) -> None:
    sent = invalid(app).apply_async(link=extra(app, "note", key=key))

    assert "no_tickets" in str(sent.get(timeout=WAIT_S, propagate=False))
    classify(app, "after").apply_async().get(timeout=WAIT_S)
    assert client.llen(key) == 0


def test_a_failed_item_is_no_failed_task(app: Celery, client: redis.Redis, key: str) -> None:
    sent = classify(app, None, "my card").apply_async(
        link=extra(app, "note", key=key), link_error=extra(app, "note_failure", key=key)
    )

    assert sent.get(timeout=WAIT_S)["results"][0]["error"]["code"] == "null_text"
    assert marks(client, key) == ["1"]


def test_a_chain_goes_on_with_the_result(app: Celery) -> None:
    sent = chain(classify(app, "a", "b", "c"), extra(app, "count_results"), app=app).apply_async()

    assert sent.get(timeout=WAIT_S) == 3
    assert sent.parent.successful()


def test_a_chain_from_a_plain_task_to_a_batched_one(app: Celery, key: str) -> None:
    sent = chain(extra(app, "note", key=key), classify(app, "my card"), app=app).apply_async()

    assert len(sent.get(timeout=WAIT_S)["results"]) == 1


def test_a_chain_stops_at_a_failure_and_its_later_parts_fail(app: Celery, client: redis.Redis, key: str) -> None:
    sent = chain(invalid(app), extra(app, "note", key=key), app=app).apply_async()

    error = sent.parent.get(timeout=WAIT_S, propagate=False)
    assert str(error).startswith("no_tickets: ")
    assert str(sent.get(timeout=WAIT_S, propagate=False)) == str(error)
    assert client.llen(key) == 0


def test_a_previous_result_does_not_fit_as_positional_argument(app: Celery) -> None:
    sent = chain(classify(app, "a"), classify(app, "b", immutable=False), app=app).apply_async()

    assert str(sent.get(timeout=WAIT_S, propagate=False)).startswith("invalid_message: ")


def test_a_group_returns_in_order(app: Celery) -> None:
    sent = group([classify(app, *["text"] * size) for size in (3, 1, 2)], app=app).apply_async()

    assert [len(result["results"]) for result in sent.get(timeout=WAIT_S)] == [3, 1, 2]


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # Celery's call of redis-py
def test_a_saved_group_is_found_again(app: Celery) -> None:
    sent = group([classify(app, "a"), classify(app, "b")], app=app).apply_async()
    sent.save()

    found = GroupResult.restore(sent.id, app=app)

    assert [result["results"][0]["id"] for result in found.get(timeout=WAIT_S)] == ["0", "0"]
    assert found.successful()


def test_a_chord_runs_its_body_once_with_all_results(app: Celery) -> None:
    header = [classify(app, *["text"] * size) for size in (1, 2, 3)]

    sent = chord(header, extra(app, "count_results"), app=app).apply_async()

    assert sent.get(timeout=WAIT_S) == 6


def test_a_large_chord_has_no_part_counted_twice(app: Celery) -> None:
    sent = chord([classify(app, f"text {n}") for n in range(200)], extra(app, "count_results"), app=app).apply_async()

    assert sent.get(timeout=WAIT_S) == 200


@pytest.mark.parametrize("failing", [invalid, lambda app: extra(app, "fail")], ids=["batched", "plain"])
def test_a_failing_header_part_fails_the_chord(
    app: Celery, client: redis.Redis, key: str, failing: Callable[[Celery], Signature]
) -> None:
    body = extra(app, "note", key=key).on_error(extra(app, "note", key=f"{key}-error"))

    sent = chord([classify(app, "a"), failing(app), classify(app, "b")], body, app=app).apply_async()

    error = sent.get(timeout=WAIT_S, propagate=False)
    assert isinstance(error, ChordError), error
    assert marks(client, f"{key}-error")
    assert client.llen(key) == 0


def test_a_batched_body_of_a_chord_runs(app: Celery, key: str) -> None:
    header = [extra(app, "note", key=key), extra(app, "note", key=key)]

    sent = chord(header, classify(app, "my card"), app=app).apply_async()

    assert len(sent.get(timeout=WAIT_S)["results"]) == 1


def test_a_builtin_task_of_celery_runs(app: Celery) -> None:
    sent = signature("celery.accumulate", args=(1, 2, 3), app=app).apply_async(queue="classify")

    assert sent.get(timeout=WAIT_S) == [1, 2, 3]


def test_a_retry_keeps_the_id_and_runs_again(app: Celery) -> None:
    sent = extra(app, "retry_once").apply_async()

    assert sent.get(timeout=WAIT_S) == 1


def test_a_plain_task_fails_with_its_own_error(app: Celery) -> None:
    sent = extra(app, "fail").apply_async()

    assert isinstance(sent.get(timeout=WAIT_S, propagate=False), ValueError)


def test_all_of_this_leaves_nothing_unacknowledged(client: redis.Redis, worker: WorkerProcess) -> None:
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0, WAIT_S, "nothing unacknowledged")
    assert worker.process.poll() is None
