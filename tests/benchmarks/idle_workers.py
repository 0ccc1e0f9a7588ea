"""Fifty idle workers on a server, in a few processes, each waiting for messages by one of three strategies.

Every strategy is the worker's own fetcher, ledger and scripts; only the way to wait differs. A worker drains and
acknowledges, and notes when it woke and when it drained which message. The module knows nothing of rates or figures.
"""

from __future__ import annotations

import multiprocessing
import time
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from redis import Redis

from tests.benchmarks.broker import BenchError
from worker import keys
from worker.fetching import WAIT_S, Fetcher, _Wait
from worker.ledger import Ledger, Terms
from worker.quota import Quota

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from worker.ledger import Drained

QUEUES: Final = ("waiting-a", "waiting-b", "waiting-c")
PROCESSES: Final = 5  # so that those who wake in vain do not all contend for one interpreter lock
WORKERS_EACH: Final = 10
ROOM: Final = Quota(64)
ANSWER_S: Final = 30.0
POLL_S: Final = (0.005, 0.1)  # the shortest and the longest pause


class Poller(Fetcher):
    """Drains every 5 ms while messages come, and backs off to every 100 ms."""

    _pause_s = POLL_S[0]

    def _open_waits(self) -> None:
        """It has none."""

    def _step(self) -> None:
        drained = self._ledger.drain(self._room().messages, self.queues)
        if drained:
            self._deliver(drained)
        self._pause_s = POLL_S[0] if drained else min(2 * self._pause_s, POLL_S[1])
        self._sleep(self._pause_s)


class _Peek(_Wait):
    """Blocks until the list has a message, and leaves it there."""

    def begin(self, *_drain: object) -> None:
        self._connection.send_command("BLMOVE", self.list_key, self.list_key, "RIGHT", "RIGHT", WAIT_S)
        self.waiting = True
        self._began_s = time.monotonic()

    def read(self) -> tuple[bool, list[Drained]]:
        self.waiting = False
        return self._connection.read_response() is not None, []


class Peeker(Fetcher):
    """Wakes whenever a list has a message, as everybody does, then drains."""

    def _open_waits(self) -> None:
        for list_key in chain.from_iterable(map(keys.lists, self.queues)):
            self._waits.append(_Peek(self._client.connection_pool, list_key, list_key))


STRATEGIES = {"inbox": Fetcher, "polling": Poller, "peek": Peeker}


class Seen(NamedTuple):
    """What a process of workers saw: when one woke, when a message of this id was drained, what broke."""

    woken_s: list[float]
    drained_s: dict[str, float]
    broken: list[str]


class Worker:
    """An idle worker: one fetcher, which acknowledges what it drains."""

    def __init__(self, url: str, strategy: type[Fetcher], name: str) -> None:
        self.seen = Seen([], {}, [])
        self._ledger = Ledger(Redis.from_url(url), f"{name}:bench", QUEUES, Terms())
        self.fetcher = strategy(
            self._ledger,
            QUEUES,
            room=self._room,
            deliver=self._deliver,
            on_broken=lambda error: self.seen.broken.append(str(error)),
            turned=lambda: None,
        )

    def _room(self) -> Quota:
        self.seen.woken_s.append(time.monotonic())
        return ROOM

    def _deliver(self, drained: list[Drained]) -> None:
        now_s = time.monotonic()
        self.seen.drained_s.update({one.held.task_id: now_s for one in drained})
        self._ledger.done(one.held for one in drained)


def work(url: str, strategy: type[Fetcher], first: int, parent: Connection) -> None:
    """Be ten workers until told to stop; say when all have looked once, and in the end what they saw."""
    workers = [Worker(url, strategy, f"waiting-{first + number}") for number in range(WORKERS_EACH)]
    for worker in workers:
        worker.fetcher.start()
    while not all(worker.seen.woken_s or worker.seen.broken for worker in workers):
        time.sleep(0.01)
    parent.send(None)
    parent.recv()
    for worker in workers:
        worker.fetcher.close()
        parent.send(worker.seen)


class Crowd:
    """The processes of workers that wait by one strategy."""

    def __init__(self, url: str, strategy: type[Fetcher]) -> None:
        context = multiprocessing.get_context("fork")
        self._children: list[Connection] = []
        for first in range(0, PROCESSES * WORKERS_EACH, WORKERS_EACH):
            here, there = context.Pipe()
            context.Process(target=work, args=(url, strategy, first, there), daemon=True).start()
            self._children.append(here)
        for child in self._children:
            _answer(child)

    def stop(self) -> list[Seen]:
        """Stop them all; what each worker saw."""
        for child in self._children:
            child.send(None)
        return [_answer(child) for child in self._children for _ in range(WORKERS_EACH)]


def _answer(child: Connection) -> Seen:
    if not child.poll(ANSWER_S):
        text = f"a process of workers did not answer in {ANSWER_S:.0f} s"
        raise BenchError(text)
    answer: Seen = child.recv()
    return answer
