"""What a worker still fetches while it has plenty to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.names import PRIORITY_BULK_SHARD, queue_lists, unacked_key
from tests.integration.brisk import COMMAND
from tests.services import WorkerProcess, wait_until
from worker.credit import FEW_MESSAGES
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
    wait_until(lambda: client.hlen(unacked_key("bulk")) == 2, WAIT_S, "both are held")
    send(app, 1).get(timeout=WAIT_S)

    assert room(app)["bulk"] == 0
    assert room(app)["credit"] >= CREDIT_MIN_ITEMS

    for one in sent:
        one.revoke()
    wait_until(lambda: room(app)["bulk"] == 2, WAIT_S, "the slots are free")


def test_an_urgent_message_is_fetched_however_many_less_urgent_ones_are_in_hand(
    app: Celery, client: redis.Redis
) -> None:
    sent = [send(app, LONG, priority=PRIORITY_BULK_SHARD) for _ in range(FEW_MESSAGES)]
    wait_until(lambda: client.hlen(unacked_key("classify")) == FEW_MESSAGES, WAIT_S, "all are held")
    wait_until(lambda: room(app)["credit"] <= FEW_MESSAGES, WAIT_S, "the worker has no credit left")
    more = send(app, 1, priority=PRIORITY_BULK_SHARD)

    assert len(send(app, 1).get(timeout=5)["results"]) == 1

    assert client.llen(queue_lists("classify")[2]) == 1
    for one in (*sent, more):
        one.revoke()
    wait_until(lambda: client.hlen(unacked_key("classify")) == 0, WAIT_S, "nothing is held")
