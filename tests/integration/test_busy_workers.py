"""What an autoscaler is told of a real worker: that there is work in progress, how much, and when it is over."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from schemas.names import Band
from tests.integration.brisk import COMMAND
from tests.services import WorkerProcess, wait_until
from worker import keys
from worker.ops.exporter import Exporter
from worker.ops.http import Request
from worker.ops.queues import survey

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from celery import Celery
    from celery.result import AsyncResult

LEASE_S = 3.0
WAIT_S = 40
GUESS = {"classify": 7.0}
BULK = 6
QUERY = "target_s=20&bulk_target_s=2000"


class Asked:
    """A worker, and an exporter that looks whenever it is asked."""

    def __init__(self, client: redis.Redis, app: Celery) -> None:
        self._client = client
        self._app = app
        self._serial = count()  # equal texts would share a row
        self._exporter = Exporter(client, list(GUESS), GUESS, LEASE_S)

    def send(self, tickets: int, **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
        texts = [{"id": str(number), "text": f"card {next(self._serial)}"} for number in range(tickets)]
        return self._app.send_task("classify.tickets", kwargs={"tickets": texts}, queue="classify", **options)

    def queue(self) -> dict[str, Any]:
        self._exporter.look()
        shown: dict[str, Any] = json.loads(self._exporter.respond(Request("/queues/classify", "", QUERY)).body)
        return shown

    def load(self, band: Band) -> float:
        (queue,) = survey(self._client, GUESS, LEASE_S).queues
        return queue.load[band]

    def wait_idle(self) -> None:
        wait_until(lambda: self.queue()["backlog_s"] == 0, WAIT_S, "nothing is left")


@pytest.fixture(scope="module")
def slow_worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(command=COMMAND, lease_s=LEASE_S, queues="classify")


@pytest.fixture
def asked(client: redis.Redis, app: Celery, slow_worker: WorkerProcess) -> Asked:
    del slow_worker
    return Asked(client, app)


def test_one_long_message_is_a_busy_worker_until_it_is_done(asked: Asked) -> None:
    sent = asked.send(1000)
    while not sent.ready():
        seen = asked.queue()
        if not sent.ready():
            assert seen["backlog_s"] > 0, seen  # whenever it is asked: KEDA would end the last worker
        if seen["busy_workers"] > 0.9:
            assert seen["backlog_s"] == pytest.approx(20, abs=2.1)
            break
    assert not sent.ready(), "it was never seen to be busy"
    assert (seen["waiting"], seen["in_flight"]) == (0, 1)
    assert len(sent.get(timeout=WAIT_S)["results"]) == 1000
    asked.wait_idle()
    assert asked.queue()["in_flight"] == 0


def test_bulk_work_in_progress_counts_as_bulk(asked: Asked) -> None:
    sent = asked.send(800, priority=BULK)
    wait_until(lambda: asked.load(Band.BULK) > 0.9, WAIT_S, "it is busy")
    seen = asked.queue()
    assert (asked.load(Band.INTERACTIVE), seen["waiting"]) == (0, 0)
    assert seen["backlog_s"] == pytest.approx(0.2, abs=0.021)
    sent.revoke()
    asked.wait_idle()


def test_steady_work_of_small_messages_is_a_load_of_one(asked: Asked) -> None:
    sent = [asked.send(5) for _ in range(200)]
    wait_until(lambda: asked.load(Band.INTERACTIVE) > 0.9, WAIT_S, "it is busy")
    assert asked.queue()["workers"] == 1
    assert all(one.get(timeout=WAIT_S) for one in sent)
    asked.wait_idle()
    assert asked.load(Band.INTERACTIVE) == 0


def test_the_rate_is_known_before_a_message_ends_and_outlives_the_worker(
    asked: Asked, client: redis.Redis, slow_worker: WorkerProcess
) -> None:
    client.delete(keys.SERVICE_RATES, keys.UNIT_RATES, keys.MESSAGE_SIZES)
    for _ in range(50):
        asked.send(1)
    long = asked.send(500)
    wait_until(lambda: client.hexists(keys.SERVICE_RATES, "classify"), WAIT_S, "a rate")
    assert not long.ready()
    asked.wait_idle()
    assert slow_worker.stop() == 0
    wait_until(lambda: asked.queue()["workers"] == 0, what="its lease to end")
    for _ in range(10):
        asked.send(1)
    rate = float(client.hget(keys.SERVICE_RATES, "classify") or 0)
    assert asked.queue()["backlog_s"] == pytest.approx(10 / rate, rel=1e-3)
    assert asked.queue()["busy_workers"] == 0
