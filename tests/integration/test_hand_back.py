"""A worker that stops hands back what it has not started, however oddly it was written, and the next one labels it."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.messages import GOOD_KWARGS, QUEUE, body_of, labels, message, push
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.services import WorkerProcess


def protocol_1(task_id: str) -> str:
    return json.dumps({"task": "classify.tickets", "id": task_id, "args": [], "kwargs": GOOD_KWARGS})


def test_what_waits_comes_back_whole(client: redis.Redis, start_worker: Callable[..., WorkerProcess]) -> None:
    ids = [str(uuid4()) for _ in range(8)]
    header = [{"task": "classify.tickets", "id": task_id} for task_id in ids]
    odd: list[dict[str, Any]] = [
        message(headers=header[0]),
        message(headers=header[1], properties={"delivery_tag": None, "delivery_info": None}),
        message(zlib.compress(body_of().encode()), headers=header[2] | {"compression": "application/x-gzip"}),
        {"headers": header[3], "content-type": "application/json", "body": body_of()},
        message(protocol_1(ids[4])) | {"headers": None},
        message(headers=header[5], properties={"delivery_info": {"exchange": "no-such", "routing_key": "no-such"}}),
        message(headers=header[6], properties={"delivery_tag": "1"}),
        message(headers=header[7], properties={"delivery_tag": "1"}),
    ]
    first = start_worker(batch_timeout_s=60, drain_timeout_s=1)
    push(client, message(headers={"task": "classify.tickets", "id": (warm := str(uuid4()))}))
    assert labels(client, warm) == ["billing"]  # now it knows its pace, and holds more than a few messages
    push(client, message(body_of({"tickets": [{"id": "1", "text": "endless"}]})))
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 1, what="the runner is busy")
    for written in odd:
        push(client, written)
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 1 + len(odd), what="all wait")

    assert first.stop() == 0

    assert client.hlen("batchmill:unacked:classify") == 0
    assert client.llen(QUEUE) == 1 + len(odd)
    second = start_worker(batch_timeout_s=1)
    assert [labels(client, task_id) for task_id in ids] == [["billing"]] * len(ids)
    assert second.stop() == 0


def test_batches_that_outlast_the_drain_come_back_and_the_worker_ends_well(
    client: redis.Redis, start_worker: Callable[..., WorkerProcess]
) -> None:
    client.delete(QUEUE)
    worker = start_worker(batch_timeout_s=60, drain_timeout_s=0.5, runners=4)
    for name in ("a", "b", "c", "d"):
        push(client, message(body_of({"tickets": [{"id": name, "text": f"endless {name}"}]})))
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 4, what="all are held")

    assert worker.stop() == 0  # it aborted where a thread was still in ONNX Runtime
    assert client.llen(QUEUE) == 4
