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
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
from kombu.transport import TRANSPORT_ALIASES, redis, virtual
from kombu.utils.json import dumps
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from worker import keys
from worker.fetching import Fetcher
from worker.protocol import read_envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.credit import Credit, Slots
    from worker.ledger import Drained

log = structlog.get_logger(__name__)

_OPTIONS: Final = ("custody", "room")
_UNWRITABLE: Final = ("MISCONF", "MASTERDOWN", "NOREPLICAS", "LOADING")

_publishing = threading.local()


@contextmanager
def holding_back(messages: list[tuple[str, str]] | None) -> Iterator[None]:
    """Collect what this thread publishes to queues, as list key and message, instead of sending it; None = send it."""
    outer = getattr(_publishing, "messages", None)
    _publishing.messages = messages
    try:
        yield
    finally:
        _publishing.messages = outer


@contextmanager
def writing() -> Iterator[None]:
    """Treat a server that takes no writes now, after a failover, say, like one that is gone: it will mend.

    Raises:
        ConnectionError: in place of what the server said, so that Celery tries again instead of ending the worker.
    """
    try:
        yield
    except ResponseError as exc:
        if isinstance(exc, ReadOnlyError | OutOfMemoryError) or str(exc).startswith(_UNWRITABLE):
            raise RedisConnectionError(f"the server takes no writes: {type(exc).__name__}") from exc
        raise


class QoS(virtual.QoS):  # type: ignore[misc] # kombu has no types
    """Acknowledges by claim. The broker knows what is held from the drain on, so nothing is registered here."""

    restore_at_shutdown = False  # the pool gives back what it did not run; a lost connection gives back nothing

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

    def restore_visible(self, *_: object, **__: object) -> None:
        """Do nothing: the keeper sweeps."""


class _Draining:
    """What makes a kombu Redis channel drain. Queues are consumed by a thread; pub/sub stays kombu's."""

    QoS = QoS
    custody: Any = None
    room: Any = None
    _fetchers: tuple[Fetcher, ...] = ()
    _arrived: deque[Drained]

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - kombu's own signature
        self._arrived = deque()
        super().__init__(*args, **options)

    def _queue_bind(self, *args: Any) -> None:  # noqa: ANN401 - kombu's own signature
        """Note a binding, as at every connect."""
        with writing():
            super()._queue_bind(*args)  # type: ignore[misc]

    def basic_consume(self, queue: str, *args: Any, **options: Any) -> object:  # noqa: ANN401 - kombu's own signature
        """Consume from one more queue, from the next turn of the event loop on."""
        if queue not in self._fanout_queues:  # type: ignore[attr-defined]
            self.custody.ledger.serve(queue)
        return super().basic_consume(queue, *args, **options)  # type: ignore[misc]

    def basic_cancel(self, consumer_tag: str) -> object:
        """Stop consuming from one queue; what was fetched before is still delivered."""
        self._stop_fetching()
        return super().basic_cancel(consumer_tag)  # type: ignore[misc]

    def _brpop_start(self, timeout: float | None = None) -> None:  # noqa: ARG002 - kombu's own signature
        """At every turn of the event loop: see that fetchers fetch from the queues that are consumed."""
        active = tuple(queue for queue in self.custody.ledger.queues if queue in self._active_queues)  # type: ignore[attr-defined]
        wanted: dict[Credit | Slots, tuple[str, ...]] = self.room.by_limit(active)
        if [fetcher.queues for fetcher in self._fetchers] != list(wanted.values()):
            self._stop_fetching()
            self._fetchers = tuple(self._started(limit, queues) for limit, queues in wanted.items())

    def _started(self, limit: Credit | Slots, queues: tuple[str, ...]) -> Fetcher:
        limit.fetcher = Fetcher(
            self.custody.ledger,
            queues,
            room=lambda: limit(len(self._arrived)),
            deliver=self._on_drained,
            on_broken=self._on_broken,
            turned=partial(self.room.vitals.fetched, queues),
        )
        limit.fetcher.start()
        return limit.fetcher

    def close(self) -> None:
        """Stop consuming."""
        self._stop_fetching()
        super().close()  # type: ignore[misc]

    def _stop_fetching(self) -> None:
        for fetcher in self._fetchers:
            fetcher.close()
        self._fetchers = ()

    def _on_drained(self, drained: list[Drained]) -> None:
        """From the fetcher's thread: hold, then deliver on the event loop, in order."""
        self.custody.take(drained)
        self._arrived.extend(drained)
        self.connection.hub.call_soon(self._deliver_arrived)  # type: ignore[attr-defined]

    def _deliver_arrived(self) -> None:
        while self._arrived and not self.closed:  # type: ignore[attr-defined]
            one = self._arrived[0]
            message = _envelope(one)
            if message is None:
                self._park(one)
            else:
                self.connection._deliver(message, one.held.queue)  # type: ignore[attr-defined] # noqa: SLF001
            self._arrived.popleft()  # only now: until the pool counts it, the credit must

    def decode_body(self, body: Any, encoding: Any = None) -> Any:  # noqa: ANN401 - kombu's own signature
        """Return the body's bytes; None for one that is not in its encoding, which the consumer refuses by its id."""
        try:
            return super().decode_body(body, encoding)  # type: ignore[misc]
        except Exception:  # noqa: BLE001 - the message's outcome is made in the consumer
            return None

    def _park(self, drained: Drained) -> None:
        """Move an entry that only looked like a message to the unreadable ones."""
        key = keys.unreadable(drained.held.queue)
        with self.custody.ledger.client.pipeline() as pipe:
            pipe.lpush(key, drained.message).ltrim(key, 0, keys.UNREADABLE_KEPT - 1).execute()
        self.custody.done(drained.held.tag)
        log.warning("message.unreadable", queue=drained.held.queue, key=key)

    def _on_broken(self, error: Exception) -> None:
        """From the fetcher's thread: let the event loop fail, so that Celery reconnects."""

        def fail() -> None:
            raise error

        if not self.closed:  # type: ignore[attr-defined]
            self.connection.hub.call_soon(fail)  # type: ignore[attr-defined]

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:  # noqa: ANN401 - kombu's own signature
        held_back = getattr(_publishing, "messages", None)
        if held_back is None:
            super()._put(queue, message, **options)  # type: ignore[misc]
            return
        priority = self._get_message_priority(message, reverse=False)  # type: ignore[attr-defined]
        held_back.append((self._q_for_pri(queue, priority), dumps(message)))  # type: ignore[attr-defined]


def _envelope(drained: Drained) -> dict[str, Any] | None:
    """Return a message, completed by what kombu cannot do without; None if it is none."""
    try:
        message = read_envelope(drained.message)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(message, dict) and "body" in message and isinstance(message.get("headers"), dict | None)):
        return None
    message["headers"] = message.get("headers") or {}
    properties = message.setdefault("properties", {})
    if not isinstance(properties, dict):
        return None
    properties["delivery_tag"] = drained.held.tag
    info = properties.get("delivery_info")
    properties["delivery_info"] = (info if isinstance(info, dict) else {}) | {
        "exchange": "",
        "routing_key": drained.held.queue,
    }
    return message


class Channel(_Draining, redis.Channel):  # type: ignore[misc] # kombu has no types
    """A draining Redis channel."""

    from_transport_options = (*redis.Channel.from_transport_options, *_OPTIONS)


class SentinelChannel(_Draining, redis.SentinelChannel):  # type: ignore[misc] # kombu has no types
    """A draining channel to the master that Sentinel names."""

    from_transport_options = (*redis.SentinelChannel.from_transport_options, *_OPTIONS)


class _HubTransport:
    """Remembers the event loop, to which other threads hand their messages."""

    hub: Any = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ANN401 - kombu's own signature
        """Learn the loop."""
        self.hub = loop
        super().register_with_event_loop(connection, loop)  # type: ignore[misc]


class Transport(_HubTransport, redis.Transport):  # type: ignore[misc] # kombu has no types
    """redis:// and rediss://."""

    Channel = Channel


class SocketTransport(Transport):
    """redis+socket://, whose address kombu's channel reads as it stands."""

    can_parse_url = True


class SentinelTransport(_HubTransport, redis.SentinelTransport):  # type: ignore[misc] # kombu has no types
    """sentinel://."""

    Channel = SentinelChannel


# With several Sentinels kombu tries the next one by its URL alone, and would go on with the stock transport.
TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{SentinelTransport.__name__}"
