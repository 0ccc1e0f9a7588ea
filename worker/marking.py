"""Says in Redis what is being prepared or in inference, before it is: the sweep of a dead worker blames only that."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.ledger import Ledger

SILENCE_S: Final = 5.0
LOOK_EVERY_S: Final = 1.0  # at the answers; each look gives the other threads a turn, which may last
ATTEMPTS: Final = 2  # the connection may have died unnoticed since the last mark


class Marker:
    """The mark of one thread, written on a connection of its own. Not thread-safe.

    Before a common batch the mark is only sent: it is in the socket when the batch starts, and that outlives the
    process. Around a batch that runs alone the answer is awaited.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._pool: Any = ledger.client.connection_pool
        self._connection: Any = None
        self._field = f"{ledger.incarnation}:{threading.current_thread().name}"
        self._unanswered = 0
        self._asked_s = 0.0  # the first mark that is not answered
        self._looked_s = 0.0
        self._sent = ""
        self._sent_s = 0.0

    def mark(self, tags: Iterable[str], *, wait: bool) -> None:
        """Note the delivery tags that run next. While Redis is away there is nobody to tell, and nobody to blame."""
        value = " ".join(tags)
        if value == self._sent and not wait and monotonic() - self._sent_s < LOOK_EVERY_S:
            return  # a bulk shard runs batch after batch
        for _ in range(ATTEMPTS):
            try:
                self._send(value, wait=wait)
            except (RedisError, OSError):
                self._forget()
            else:
                return

    def _send(self, value: str, *, wait: bool) -> None:
        if self._connection is None:
            self._connection = self._pool.get_connection()
        if wait or monotonic() - self._looked_s > LOOK_EVERY_S:
            self._look()
        if not self._unanswered:
            self._asked_s = monotonic()
        # redis-py's own health check would wait for its answer.
        self._connection.send_command("HSET", keys.RUNNING, self._field, value, check_health=False)
        self._unanswered += 1
        self._sent, self._sent_s = value, monotonic()
        while wait and self._unanswered:
            self._read()

    def _look(self) -> None:
        """Read the answers that have come.

        Raises:
            RedisError, OSError: the server has gone, or has not answered for long.
        """
        while self._connection.can_read(timeout=0):
            self._read()
        self._looked_s = monotonic()
        if self._unanswered and self._looked_s - self._asked_s > SILENCE_S:
            raise RedisConnectionError("no answer to the last marks: the connection is half open")

    def _read(self) -> None:
        self._connection.read_response()
        self._unanswered -= 1

    def _forget(self) -> None:
        self._unanswered = 0
        self._sent_s = 0.0
        if self._connection is not None:
            self._connection.disconnect()
            self._pool.release(self._connection)
            self._connection = None
