"""A worker that only fetches."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

import redis

from schemas.names import Band
from worker.fetching import Fetcher
from worker.ledger import Ledger, Terms
from worker.quota import Quota

if TYPE_CHECKING:
    from worker.ledger import Drained

QUEUE = "classify"


class Fetching:
    """A running fetcher, and what it fetched.

    Attributes:
        room: how many messages it may take.
        band: the least urgent that they may be of.
        fetched: tags as they came.
        turns: cycles that it has completed.
        broken: what it said when it lost the broker.
        may_deliver: cleared, it waits before it hands over what it drained.
    """

    def __init__(self, url: str, name: str = "worker", room: int = 100) -> None:
        self.client = redis.Redis.from_url(url)
        self.ledger = Ledger(self.client, f"{name}:boot", [QUEUE], Terms())
        self.room = room
        self.band = Band.BULK
        self.fetched: SimpleQueue[str] = SimpleQueue()
        self.broken: list[Exception] = []
        self.may_deliver = threading.Event()
        self.may_deliver.set()
        self.delivering = threading.Event()
        self.turns = 0
        self.fetcher = Fetcher(
            self.ledger,
            [QUEUE],
            room=lambda: Quota(self.room, self.band),
            deliver=self._deliver,
            on_broken=self.broken.append,
            turned=self._turned,
        )

    def next_tag(self, timeout_s: float = 10.0) -> str:
        """Wait for the next message; `queue.Empty` if none comes."""
        return self.fetched.get(timeout=timeout_s)

    def grant(self, room: int, band: Band = Band.BULK) -> None:
        """Change the room, as the pool does."""
        self.room, self.band = room, band
        self.fetcher.nudge()

    def close(self) -> None:
        """Stop it."""
        self.may_deliver.set()
        self.fetcher.close()
        self.client.close()

    def _turned(self) -> None:
        self.turns += 1

    def _deliver(self, drained: list[Drained]) -> None:
        self.delivering.set()
        self.may_deliver.wait()
        for one in drained:
            self.fetched.put(one.held.tag)
