"""A kombu Redis transport that drains: messages are held under claims from the moment they leave the queue's list.

Same lists, same message format: any Celery producer works unchanged. What differs is the worker's side. kombu pops a
message and registers it in a second step, so a worker killed in between loses it (kombu#305); here one script does
both. kombu looks for overdue messages under a mutex and one by one; here `worker.keeper` sweeps. What a traced task
publishes can be held back, to go out in the same commit as its result.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from kombu.transport import redis, virtual
from kombu.utils.json import dumps, loads

from worker.fetching import Fetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.ledger import Drained

log = structlog.get_logger(__name__)

_publishing = threading.local()


@contextmanager
def holding_back(messages: list[tuple[str, str]]) -> Iterator[None]:
    """Collect what this thread publishes to queues, as list key and message, instead of sending it."""
    _publishing.messages = messages
    try:
        yield
    finally:
        _publishing.messages = None


class QoS(virtual.QoS):  # type: ignore[misc] # kombu has no types
    """Acknowledges by claim. The broker knows what is held from the drain on, so nothing is registered here."""

    restore_at_shutdown = True

    def ack(self, delivery_tag: str) -> None:
        """The message needs nothing more."""
        self.channel.custody.done(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's own signature
        """Drop the message, or put it back to the front of its queue."""
        if requeue:
            self.channel.custody.give_back([delivery_tag])
        else:
            self.channel.custody.done(delivery_tag)
        super().ack(delivery_tag)

    def restore_unacked(self) -> None:
        """Put everything back that is held and not done."""
        custody = self.channel.custody
        given_back = custody.give_back(custody.tags())
        if given_back:
            log.info("transport.given_back", messages=given_back)

    def restore_visible(self, *_: object, **__: object) -> None:
        """Do nothing: the keeper sweeps."""


class _Draining:
    """What makes a kombu Redis channel drain. Queues are consumed by a thread; pub/sub stays kombu's."""

    QoS = QoS
    custody: Any = None
    room: Any = None
    _fetcher: Fetcher | None = None

    from_transport_options: ClassVar[tuple[str, ...]] = (*redis.Channel.from_transport_options, "custody", "room")

    def basic_consume(self, queue: str, *args: Any, **options: Any) -> object:  # noqa: ANN401 - kombu's own signature
        """Consume from one more queue."""
        answer = super().basic_consume(queue, *args, **options)  # type: ignore[misc]
        if queue not in self._fanout_queues and self._fetcher is None:  # type: ignore[attr-defined]
            self._arrived: deque[Drained] = deque()
            self._fetcher = Fetcher(
                self.custody.ledger, self.custody.ledger.client, self.room, self._on_drained, self._on_broken
            )
            self.room.fetcher = self._fetcher
            self._fetcher.start()
        return answer

    def basic_cancel(self, consumer_tag: str) -> object:
        """Stop consuming; the fetcher has delivered what it drained when this returns."""
        self._stop_fetching()
        return super().basic_cancel(consumer_tag)  # type: ignore[misc]

    def close(self) -> None:
        """Stop consuming and put back what is held."""
        self._stop_fetching()
        super().close()  # type: ignore[misc]

    def _stop_fetching(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
            self.room.fetcher = None

    def _on_drained(self, drained: list[Drained]) -> None:
        """From the fetcher's thread: hold, then deliver on the event loop, in order."""
        readable = [one for one in drained if one.held.tag]
        for one in drained:
            if not one.held.tag:
                log.warning("message.unreadable", queue=one.held.queue)
        self.custody.take(readable)
        self._arrived.extend(readable)
        self.connection.hub.call_soon(self._deliver_arrived)  # type: ignore[attr-defined]

    def _deliver_arrived(self) -> None:
        while self._arrived and not self.closed:  # type: ignore[attr-defined]
            one = self._arrived.popleft()
            self.connection._deliver(_envelope(one), one.held.queue)  # type: ignore[attr-defined] # noqa: SLF001

    def _on_broken(self, error: Exception) -> None:
        """From the fetcher's thread: let the event loop fail, so that Celery reconnects."""

        def fail() -> None:
            raise error

        if not self.closed:  # type: ignore[attr-defined]
            self.connection.hub.call_soon(fail)  # type: ignore[attr-defined]

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Do nothing: the fetcher waits."""

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:  # noqa: ANN401 - kombu's own signature
        held_back = getattr(_publishing, "messages", None)
        if held_back is None:
            super()._put(queue, message, **options)  # type: ignore[misc]
            return
        priority = self._get_message_priority(message, reverse=False)  # type: ignore[attr-defined]
        held_back.append((self._q_for_pri(queue, priority), dumps(message)))  # type: ignore[attr-defined]


def _envelope(drained: Drained) -> dict[str, Any]:
    envelope: dict[str, Any] = loads(drained.message)
    envelope["properties"]["correlation_id"] = drained.held.task_id
    return envelope


class Channel(_Draining, redis.Channel):  # type: ignore[misc] # kombu has no types
    """A draining Redis channel."""


class SentinelChannel(_Draining, redis.SentinelChannel):  # type: ignore[misc] # kombu has no types
    """A draining channel to the master that Sentinel names."""


class _HubTransport:
    """Remembers the event loop, to which other threads hand their messages."""

    hub: Any = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ANN401 - kombu's own signature
        """Learn the loop."""
        self.hub = loop
        super().register_with_event_loop(connection, loop)  # type: ignore[misc]


class Transport(_HubTransport, redis.Transport):  # type: ignore[misc] # kombu has no types
    """redis://, rediss:// and redis+socket://."""

    Channel = Channel


class SentinelTransport(_HubTransport, redis.SentinelTransport):  # type: ignore[misc] # kombu has no types
    """sentinel://."""

    Channel = SentinelChannel
