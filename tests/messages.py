"""Messages written by hand: what a producer without Celery, or one that makes every mistake, puts on the queue."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.services import wait_until

if TYPE_CHECKING:
    import redis

QUEUE = "classify"
GOOD_KWARGS = {"tickets": [{"id": "1", "text": "my card"}]}


def body_of(kwargs: object = GOOD_KWARGS, args: object = (), embed: object = None) -> str:
    """Return the body of protocol 2 as JSON."""
    return json.dumps([args, kwargs, embed])


def message(
    body: str | bytes | None = None,
    headers: dict[str, Any] | None = None,
    properties: dict[str, Any] | None = None,
    **envelope: object,
) -> dict[str, Any]:
    """Return a good message with some of its parts replaced."""
    body = body_of() if body is None else body
    return {
        "body": base64.b64encode(body.encode() if isinstance(body, str) else body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": "classify.tickets", "id": str(uuid4())} | (headers or {}),
        "properties": {
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": QUEUE},
            "delivery_tag": str(uuid4()),
        }
        | (properties or {}),
    } | envelope


def push(client: redis.Redis, entry: object) -> None:
    """Put a message, or bytes that are none, on the queue."""
    client.lpush(QUEUE, entry if isinstance(entry, bytes) else json.dumps(entry))


def outcome(client: redis.Redis, task_id: str, timeout_s: float = 20.0) -> dict[str, Any]:
    """Wait for what Celery stores of a task: `status`, `result` and more."""
    key = f"celery-task-meta-{task_id}"
    wait_until(lambda: client.exists(key), timeout_s, f"an end of task {task_id}")
    stored: dict[str, Any] = json.loads(client.get(key))
    return stored


def refusal(client: redis.Redis, task_id: str) -> str:
    """Wait for the failure of a task; return its text."""
    stored = outcome(client, task_id)
    assert stored["status"] == "FAILURE", stored["status"]
    assert stored["result"]["exc_type"] == "MessageError", stored["result"]
    (text,) = stored["result"]["exc_message"]
    return str(text)


def labels(client: redis.Redis, task_id: str) -> list[str | None]:
    """Wait for the success of a task; return its labels."""
    stored = outcome(client, task_id)
    assert stored["status"] == "SUCCESS", stored["result"]
    return [result["label"] for result in stored["result"]["results"]]
