"""What a worker still fetches while it has plenty to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.brisk import COMMAND
from tests.services import WorkerProcess, wait_until
from worker.lifecycle import CREDIT_MIN_ITEMS

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from celery import Celery
    from celery.result import AsyncResult

WAIT_S = 40
LONG = 10_000  # tickets of a message, each of which takes the model 5 ms


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=COMMAND, queues="classify,bulk", bulk_slots=2)


def send(app: Celery, tickets: int, queue: str = "classify", **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    texts = [{"id": str(number), "text": f"card {number}"} for number in range(tickets)]
    return app.send_task("classify.tickets", kwargs={"tickets": texts}, queue=queue, **options)


def room(app: Celery) -> dict[str, int]:
    """Return how many messages the one worker would take, by what limits them."""
    (stats,) = app.control.inspect(limit=1, timeout=WAIT_S).stats().values()
    shown: dict[str, int] = stats["broker"]["transport_options"]["room"]
    return shown


def test_messages_in_slots_take_up_no_credit(app: Celery, client: redis.Redis) -> None:
    sent = [send(app, LONG, "bulk") for _ in range(2)]
    wait_until(lambda: client.hlen("batchmill:unacked:bulk") == 2, WAIT_S, "both are held")
    send(app, 1).get(timeout=WAIT_S)

    assert room(app)["bulk"] == 0
    assert room(app)["credit"] >= CREDIT_MIN_ITEMS

    for one in sent:
        one.revoke()
    wait_until(lambda: room(app)["bulk"] == 2, WAIT_S, "the slots are free")
