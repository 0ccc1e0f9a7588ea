"""Classify tickets with nothing but a Redis client: the message is written by hand.

    python lpush_producer.py redis://localhost:6379/0 "I was charged twice in May"

This is what Celery's message protocol 2 looks like in Redis, so it shows what a producer in any other
language has to send. Prints the result as JSON. Ends with exit code 1 and the reason if the message
was refused.
"""  # noqa: INP001 - a script to copy, not a package

import base64
import json
import sys
import time
import uuid
from typing import Any  # JSON as it comes

import redis

QUEUE = "classify"


def priority_list(priority: int) -> str:
    """The Redis list of a priority: four lists serve the ten priorities, 0 first."""
    step = priority if priority == 9 else priority // 3 * 3  # noqa: PLR2004 - 0, 3, 6 and 9 have a list
    return f"{QUEUE}\x06\x16{step}" if step else QUEUE


def message(task_id: str, kwargs: dict[str, Any], priority: int) -> str:
    """The message as JSON: the body is `[args, kwargs, embed]`, as JSON again, in base64."""
    body = json.dumps([[], kwargs, {}])
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {
                "lang": "py",
                "task": "classify.tickets",
                "id": task_id,
                "argsrepr": "()",
                "kwargsrepr": "(tickets)",
                "enqueued_at": time.time(),
            },
            "properties": {
                "correlation_id": task_id,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "delivery_tag": str(uuid.uuid4()),
                "body_encoding": "base64",
                "priority": priority,
            },
        }
    )


def enqueue(client: redis.Redis, tickets: list[dict[str, str]], priority: int = 0) -> str:
    """Send the tickets and give the task's id: 0 to 2 is interactive, 3 to 5 normal, 6 to 9 bulk."""
    task_id = str(uuid.uuid4())
    client.lpush(priority_list(priority), message(task_id, {"tickets": tickets}, priority))
    return task_id


def wait(client: redis.Redis, task_id: str, timeout_s: float = 60) -> dict[str, Any]:
    """Wait until the task has ended and give what Celery stored: `status`, `result` and more."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        stored = client.get(f"celery-task-meta-{task_id}")
        meta = json.loads(stored) if stored else {}
        if meta.get("status") in {"SUCCESS", "FAILURE", "REVOKED"}:
            return meta
        time.sleep(0.02)
    reason = f"task {task_id} has no result after {timeout_s} s"
    raise TimeoutError(reason)


def main(url: str, texts: list[str]) -> int:
    """Send the texts as one message, wait, and print what came back."""
    client = redis.Redis.from_url(url)
    meta = wait(client, enqueue(client, [{"id": str(n), "text": text} for n, text in enumerate(texts, 1)]))
    if meta["status"] != "SUCCESS":
        reason = meta["result"]
        sys.exit(f"{reason['exc_type']}: {reason['exc_message'][0]}")
    json.dump(meta["result"], sys.stdout, ensure_ascii=False, indent=2)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
