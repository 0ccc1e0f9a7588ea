"""Hears every result as it is published: two announcements of one job are two results."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import redis

from worker import keys

if TYPE_CHECKING:
    from tests.faults.servers import Server

PASSING: Final = frozenset({"STARTED", "RETRY"})


class Announcements:
    """Listens from a thread of its own.

    Attributes:
        ends: by task id, each announcement of an end: in which life of the server, and when.
        life: how often the server has been seen to go away.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._closed = threading.Event()
        self._subscribed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="announcements", daemon=True)
        self.ends: dict[str, list[tuple[int, float]]] = {}
        self.life = 0
        self._thread.start()
        assert self._subscribed.wait(10)

    def doubled(self) -> list[str]:
        """Return the ids of jobs whose end was announced twice in one life of the server."""
        return [
            task_id for task_id, ends in list(self.ends.items()) if max(Counter(life for life, _ in ends).values()) > 1
        ]

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with suppress(redis.RedisError), self._server.client() as client, client.pubsub() as pubsub:
                pubsub.psubscribe(f"{keys.RESULT_PREFIX}*")
                self._hear(pubsub)
            self.life += 1
            self._closed.wait(0.02)

    def _hear(self, pubsub: Any) -> None:  # noqa: ANN401 - redis-py's PubSub is generic over what it decodes
        while not self._closed.is_set():
            message = pubsub.get_message(timeout=0.2)
            if message is None:
                continue
            self._subscribed.set()
            if message["type"] == "pmessage" and json.loads(message["data"])["status"] not in PASSING:
                task_id = message["channel"].decode().removeprefix(keys.RESULT_PREFIX)
                self.ends.setdefault(task_id, []).append((self.life, time.monotonic()))
