"""A worker's end of the queue without the worker: real messages from a real server, finished by hand."""

from __future__ import annotations

import json
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from celery.app.trace import build_tracer

from schemas.names import QUEUE_CLASSIFY, TASK_CLASSIFY
from tasks.app import create_app
from tests.echo import EchoPipeline
from tests.services import producer
from worker.jobs import Item, Job
from worker.settings import load
from worker.task import PrivateRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from celery.worker.request import Request


class Inbox:
    """Sends messages, takes them as Celery's consumer does, makes finished jobs of them, and looks at what is recorded.

    Attributes:
        app: the worker's application.
        client: of the server.
    """

    def __init__(self, url: str) -> None:
        self.app = create_app(load(broker_url=url, result_ttl_s=100))
        self.client = redis.Redis.from_url(url)
        self.client.flushall()
        self._task = self.app.tasks[TASK_CLASSIFY]
        self._task.__trace__ = build_tracer(TASK_CLASSIFY, self._task, self.app.loader, "test", app=self.app)
        self._producer = producer(url)
        self._connection = self.app.connection_for_read()
        self._channel = self._connection.default_channel

    def send(self, count: int = 1, **options: object) -> list[str]:
        """Send messages from a stock producer; return their ids."""
        return [
            self._producer.send_task(TASK_CLASSIFY, kwargs={}, queue=QUEUE_CLASSIFY, **options).id for _ in range(count)
        ]

    def take(self) -> Request:
        """Take the next message; it is held from here on."""
        (drained,) = self.app.custody.ledger.drain(1)
        self.app.custody.take([drained])
        message = self._channel.Message(json.loads(drained.message), channel=self._channel)
        self._channel.qos.append(message, message.delivery_tag)
        return PrivateRequest(message, app=self.app, hostname="test", task=self._task, headers=message.headers)

    def finished(self, outcome: object = "ANSWER", error: BaseException | None = None) -> Job:
        """Take the next message as a job that has come to its end."""
        request = self.take()
        job = Job(request.id, EchoPipeline(), monotonic(), context=request, error=error)
        job.items = [Item(job, 0, None, outcome=outcome)]
        return job

    def result(self, task_id: str) -> Mapping[str, Any]:
        """What the result backend holds; empty = nothing."""
        value = self.client.get(f"celery-task-meta-{task_id}")
        found: Mapping[str, Any] = json.loads(value) if value else {}
        return found

    def statuses(self, task_ids: list[str]) -> list[str | None]:
        """What became of each task; None = nothing is recorded."""
        return [self.result(task_id).get("status") for task_id in task_ids]

    @property
    def unacknowledged(self) -> int:
        """Messages that are held."""
        held: int = self.client.hlen("batchmill:unacked:classify")
        return held

    @property
    def waiting(self) -> int:
        """Messages in the queue."""
        waiting: int = self.client.llen(QUEUE_CLASSIFY)
        return waiting

    def calls(self, command: str) -> int:
        """How often the server has run `command`."""
        calls: int = self.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
        return calls

    def refusals(self) -> int:
        """How often the server has refused a write because it is read-only."""
        refused: int = self.client.info("errorstats").get("errorstat_READONLY", {"count": 0})["count"]
        return refused

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let the server refuse every write inside the block: it is a replica of nobody."""
        self.client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            self.client.replicaof("NO", "ONE")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Let the server refuse every write inside the block that takes memory."""
        self.client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.client.config_set("maxmemory", 0)

    def close(self) -> None:
        """Disconnect."""
        self._connection.release()
        self._producer.close()
        self.client.close()
