"""Says in Redis what is in inference, before it is: the sweep of a dead worker blames only that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.ledger import Ledger


class Marker:
    """The mark of one runner, written on a connection of its own. Not thread-safe.

    Before a common batch the mark is only sent: it is in the socket when the batch starts, and that outlives the
    process. Around a batch that runs alone the answer is awaited.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._pool: Any = ledger.client.connection_pool
        self._connection: Any = None
        self._field = f"{ledger.incarnation}:{threading.current_thread().name}"
        self._unanswered = False

    def mark(self, tags: Iterable[str], *, wait: bool) -> None:
        """Note the delivery tags that run next. While Redis is away there is nobody to tell, and nobody to blame."""
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
            if self._unanswered:
                self._connection.read_response()
            self._connection.send_command("HSET", keys.RUNNING, self._field, " ".join(tags))
            self._unanswered = not wait
            if wait:
                self._connection.read_response()
        except (RedisError, OSError):
            self._forget()

    def _forget(self) -> None:
        self._unanswered = False
        if self._connection is not None:
            self._connection.disconnect()
            self._pool.release(self._connection)
            self._connection = None
