"""A load of many messages, what a run without faults answers, and how often each answer was published."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import redis
from celery import Celery

from tests.benchmarks.peers.plain_model import PlainModel
from tests.services import wait_until
from tests.tiny_models import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULT_KEY = "celery-task-meta-"
KNOWN = [word for word in WORDS if word not in {"nan", "endless"}]


class Expected:
    """The labels of a plain loop over a model, ticket by ticket; each text runs once."""

    def __init__(self, model: Path) -> None:
        self._model = PlainModel(model)
        self._labels: dict[str, object] = {}

    def label(self, text: str) -> object:
        """What the model says of `text`."""
        if text not in self._labels:
            self._labels[text] = self._model.classify([text])[0]["label"]
        return self._labels[text]


class Load:
    """Messages in a queue, every text another one.

    Args:
        url: of the broker.
        singles: messages of one ticket.
        big: messages of 500 tickets, spread among them.
    """

    def __init__(self, url: str, singles: int, big: int) -> None:
        self._client = redis.Redis.from_url(url)
        sizes = [1] * singles
        for position in range(big):
            sizes.insert((position + 1) * singles // (big + 1), 500)
        with Celery("producer", broker=url, set_as_current=False) as app:
            self.sent = {
                app.send_task("classify.tickets", kwargs={"tickets": one}, queue="classify").id: one
                for one in _messages(sizes)
            }

    @property
    def recorded(self) -> int:
        """Jobs that have a result."""
        recorded: int = self._client.exists(*(f"{RESULT_KEY}{task_id}" for task_id in self.sent))
        return recorded

    @property
    def waiting(self) -> int:
        """Messages that no worker holds."""
        waiting: int = self._client.llen("classify")
        return waiting

    @property
    def held(self) -> int:
        """Messages that a worker has taken and not acknowledged."""
        held: int = self._client.hlen("batchmill:unacked:classify")
        return held

    def wait_recorded(self, jobs: int, timeout_s: float = 150.0) -> None:
        """Wait until that many jobs have a result."""
        wait_until(lambda: self.recorded >= jobs, timeout_s, f"{jobs} of {len(self.sent)} jobs recorded")

    def wait_durable(self) -> None:
        """Wait until the server has the messages on disk; it answers a producer up to two seconds before that."""
        self._client.set("tests:durable", 1)  # what is awaited is this connection's last write
        assert self._client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1

    def work_out(self, expected: Expected) -> None:
        """Run the plain loop over every text now: the workers, which have another core, work meanwhile."""
        for tickets in self.sent.values():
            for ticket in tickets:
                expected.label(ticket["text"])

    def assert_all_as_without_faults(self, expected: Expected) -> None:
        """Every job has its result, with the labels of a fault-free run, and nothing is left over."""
        wrong = [
            (task_id, answer, ticket)
            for task_id, tickets in self.sent.items()
            for answer, ticket in zip(self._answers(task_id), tickets, strict=True)
            if (answer["id"], answer["label"]) != (ticket["id"], expected.label(ticket["text"]))
        ]
        assert not wrong, wrong[:5]
        assert self.waiting == self.held == 0, (self.waiting, self.held)

    def _answers(self, task_id: str) -> list[dict[str, Any]]:
        recorded = json.loads(self._client.get(f"{RESULT_KEY}{task_id}"))
        assert recorded["status"] == "SUCCESS", recorded
        answers: list[dict[str, Any]] = recorded["result"]["results"]
        return answers

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class CountedLoad(Load):
    """A load that also counts how often each result is published. Its server must not go away."""

    def __init__(self, url: str, singles: int, big: int) -> None:
        self._published: Counter[str] = Counter()
        self._listening = redis.Redis.from_url(url)
        listener = self._listening.pubsub(ignore_subscribe_messages=True)
        listener.psubscribe(**{f"{RESULT_KEY}*": self._count})
        self._thread = listener.run_in_thread(sleep_time=0.05, daemon=True)
        super().__init__(url, singles, big)

    def assert_all_as_without_faults(self, expected: Expected) -> None:
        """The same, and every result was published once."""
        super().assert_all_as_without_faults(expected)
        wait_until(lambda: self._published.total() >= len(self.sent))
        assert self._published == {f"{RESULT_KEY}{task_id}": 1 for task_id in self.sent}

    def close(self) -> None:
        """Stop counting and disconnect."""
        self._thread.stop()
        self._thread.join(5)
        self._listening.close()
        super().close()

    def _count(self, published: dict[str, Any]) -> None:
        self._published[published["channel"].decode()] += 1


def _messages(sizes: list[int]) -> Iterator[list[dict[str, str]]]:
    number = 0
    for size in sizes:
        yield [{"id": str(index), "text": _text(number + index)} for index in range(size)]
        number += size


def _text(number: int) -> str:
    """A text that no other number has, of 15 to 24 words."""
    words = (KNOWN[(number // 7 + 3 * position) % len(KNOWN)] for position in range(14 + number % 10))
    return " ".join([str(number), *words])
