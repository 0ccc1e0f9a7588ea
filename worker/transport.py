"""kombu's Redis transport, but an entry that is no message does not end the worker.

A hand-written producer can push anything into a queue's list. kombu raises on such an entry out of the event loop, and
Celery stops. Here it moves to the list `batchmill:unreadable:QUEUE`, as it came, and the worker goes on.
"""

from __future__ import annotations

from queue import Empty
from typing import Any, Final

import structlog
from kombu.transport import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

log = structlog.get_logger(__name__)

UNREADABLE_KEY: Final = "batchmill:unreadable:{queue}"
UNREADABLE_KEPT: Final = 1000
_ENVELOPE: Final = {"body", "properties", "headers", "content-type", "content-encoding"}
_PROPERTIES: Final = {"delivery_tag", "delivery_info"}


class Channel(redis.Channel):  # type: ignore[misc] # kombu has no types
    """A Redis channel that parks what it cannot read."""

    def _brpop_read(self, **options: Any) -> bool:  # noqa: ANN401 - kombu's own signature
        try:
            try:
                popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()  # so that the next poll connects again
                raise
            if not popped:
                raise Empty
            queue = bytes_to_str(popped[0]).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._deliver_entry(queue, popped[1])
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _deliver_entry(self, queue: str, entry: bytes) -> None:
        try:
            message = loads(bytes_to_str(entry))
            readable = message.keys() >= _ENVELOPE and message["properties"].keys() >= _PROPERTIES
        except (ValueError, TypeError, AttributeError):
            readable = False
        if readable:
            self.connection._deliver(message, queue)  # noqa: SLF001 - kombu's own way in
        else:
            self._park(queue, entry)

    def _park(self, queue: str, entry: bytes) -> None:
        key = UNREADABLE_KEY.format(queue=queue)
        with self.conn_or_acquire() as client:
            client.pipeline().lpush(key, entry).ltrim(key, 0, UNREADABLE_KEPT - 1).execute()
        log.warning("message.unreadable", queue=queue, entry_bytes=len(entry), key=key)


class Transport(redis.Transport):  # type: ignore[misc] # kombu has no types
    """The transport that `create_app` configures."""

    Channel = Channel
