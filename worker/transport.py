"""kombu's Redis transport, but an entry that is no message does not end the worker.

A hand-written producer can push anything into a queue's list. kombu raises on such an entry out of the event loop, and
Celery stops. Here it moves to the list `batchmill:unreadable:QUEUE`, as it came, and the worker goes on. What a message
says only to kombu, its delivery tag and where to hand it back to, is written anew.

kombu takes an entry off its list and registers it as held in a second step. Where the connection breaks between the
two, the entry is kept here, for the consumer to hand back once it is connected again.
"""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty
from typing import Any, Final
from uuid import uuid4

import structlog
from kombu.transport import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

log = structlog.get_logger(__name__)

UNREADABLE_KEY: Final = "batchmill:unreadable:{queue}"
UNREADABLE_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class Popped:
    """An entry that was taken off its list as the connection broke; whether it is registered as held, nobody knows.

    Attributes:
        key: of the list.
        tag: its delivery tag; empty if it is no message.
    """

    key: str
    entry: bytes
    tag: str


class Channel(redis.Channel):  # type: ignore[misc] # kombu has no types
    """A Redis channel that parks what it cannot read.

    Attributes:
        interrupted: entries that the lost connection left between queue and worker.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - kombu's own signature
        self.interrupted: list[Popped] = []
        super().__init__(*args, **options)

    def hand_back(self, popped: Popped) -> None:
        """Put an entry back in front of its list, or restore it, if it has been registered as held."""
        with self.conn_or_acquire() as client:
            if client.hexists(self.unacked_key, popped.tag):
                self.qos.restore_by_tag(popped.tag, client)
            else:
                client.rpush(popped.key, popped.entry)

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
            self._deliver_entry(queue, bytes_to_str(popped[0]), popped[1])
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def decode_body(self, body: Any, encoding: Any = None) -> Any:  # noqa: ANN401 - kombu's own signature
        """Return the body's bytes; None for one that is not in its encoding, which the consumer refuses by its id."""
        try:
            return super().decode_body(body, encoding)
        except Exception:  # noqa: BLE001 - the message's outcome is made in the consumer
            return None

    def _deliver_entry(self, queue: str, key: str, entry: bytes) -> None:
        message = _read(entry, queue)
        tag = message["properties"]["delivery_tag"] if message else ""
        try:
            if message is None:
                self._park(queue, entry)
            else:
                self.connection._deliver(message, queue)  # noqa: SLF001 - kombu's own way in
        except self.connection_errors:
            if tag not in self.qos._delivered:  # noqa: SLF001 - kombu's own
                self.interrupted.append(Popped(key, entry, tag))
            raise

    def _park(self, queue: str, entry: bytes) -> None:
        key = UNREADABLE_KEY.format(queue=queue)
        with self.conn_or_acquire() as client:
            client.pipeline().lpush(key, entry).ltrim(key, 0, UNREADABLE_KEPT - 1).execute()
        log.warning("message.unreadable", queue=queue, entry_bytes=len(entry), key=key)


def _read(entry: bytes, queue: str) -> dict[str, Any] | None:
    """Return the message of an entry, with what kombu needs for itself; None if it is no message."""
    try:
        message = loads(bytes_to_str(entry))
    except Exception:  # noqa: BLE001 - kombu decodes typed values, whose constructors may raise anything
        return None
    if not (isinstance(message, dict) and "body" in message and isinstance(message.get("headers"), dict | None)):
        return None
    message["headers"] = message.get("headers") or {}
    properties = message.setdefault("properties", {})
    if not isinstance(properties, dict):
        return None
    properties["delivery_tag"] = str(uuid4())  # of two messages with one tag, as if copied by hand, kombu keeps one
    info = properties.get("delivery_info")
    # Where to hand it back: kombu would look for its exchange, and drop it if nobody has declared that.
    properties["delivery_info"] = (info if isinstance(info, dict) else {}) | {"exchange": "", "routing_key": queue}
    return message


class Transport(redis.Transport):  # type: ignore[misc] # kombu has no types
    """The transport that `create_app` configures."""

    Channel = Channel
