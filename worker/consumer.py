"""The Celery consumer that answers a message it cannot read, where stock Celery drops it and quotes it in the log.

A refused message gets a failed result with a typed error, if it names its task id, and leaves the queue. After a
reconnect, what the lost connection held and the pool had not started goes back to the front of the queue at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import structlog
from celery.worker import consumer
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from worker import protocol
from worker.metrics import JOBS, REFUSED
from worker.transport import writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.lifecycle import BatchApp
    from worker.pool import BatchPool

RETRY_EVERY_S: Final = 5.0

log = structlog.get_logger(__name__)
kombu_log = logging.getLogger(__name__)  # what kombu's methods expect


class Consumer(consumer.Consumer):  # type: ignore[misc] # celery has no types
    """Guards the door: what passes is a task that we have, with a body that decodes, of a size that we take."""

    app: BatchApp
    pool: BatchPool

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:  # noqa: ANN401 - Celery's own
        """Return what is called with every message."""
        handle = super().create_task_handler(*args, **options)

        def on_message(message: Any) -> None:  # noqa: ANN401 - kombu's message
            try:
                self._check(message)
                handle(message)
            except MessageError as exc:
                self._refuse(message, exc)
            except (RedisError, OSError):  # the connection's trouble, not the message's
                raise
            except Exception as exc:  # noqa: BLE001 - makes the message's outcome; it must not end the worker
                self.on_invalid_task(None, message, exc)

        return on_message

    def on_unknown_message(self, body: object, message: Any) -> None:  # noqa: ANN401, ARG002 - Celery's own signature
        """Refuse a message without headers that is no protocol 1 message either."""
        self._refuse(message, MessageError(ErrorCode.INVALID_MESSAGE, "neither Celery protocol 1 nor 2"))

    def on_decode_error(self, message: Any, exc: Exception) -> None:  # noqa: ANN401 - Celery's own signature
        """Refuse a message that kombu could not decompress or decode."""
        self._refuse(message, MessageError(ErrorCode.NOT_JSON, f"the body does not decode: {type(exc).__name__}"))

    def on_invalid_task(self, body: object, message: Any, exc: Exception) -> None:  # noqa: ANN401, ARG002 - Celery's own
        """Refuse a message whose headers Celery rejects, such as a malformed ETA."""
        self._refuse(
            message, MessageError(ErrorCode.INVALID_MESSAGE, f"Celery refuses its headers: {type(exc).__name__}")
        )

    def ensure_connected(self, conn: Any) -> Any:  # noqa: ANN401 - kombu's connection
        """Connect, trying every few seconds; Celery would wait for half a minute once an outage has lasted for some."""
        turned = self.app.vitals.turned

        def ensure_connection(*args: Any, callback: Callable[[], None] | None = None, **options: Any) -> Any:  # noqa: ANN401 - kombu's own
            def every_second() -> None:
                turned()
                if callback is not None:
                    callback()

            return stock(*args, callback=every_second, interval_max=RETRY_EVERY_S, **options)

        stock, conn.ensure_connection = conn.ensure_connection, ensure_connection
        return super().ensure_connected(conn)

    def on_close(self) -> None:
        """Close the idle connections too: on one that is half open, each command would wait for its timeout."""
        self.app.vitals.disconnected()
        self.app.custody.ledger.client.connection_pool.disconnect(inuse_connections=False)
        super().on_close()

    def on_ready(self) -> None:
        """Hand back what a lost connection left behind: what is held, but neither runs here nor awaits its record."""
        super().on_ready()
        here = self.pool.held_tags()
        with writing():
            self.app.custody.give_back([tag for tag in self.app.custody.tags() if tag not in here])
        self.app.vitals.connected()

    def _check(self, message: Any) -> None:  # noqa: ANN401 - kombu's message
        """Raise `MessageError` unless the message can be handed to Celery."""
        limit = self.app.message_bytes_of(message.delivery_info["routing_key"])
        if not isinstance(message.body, str | bytes):
            raise MessageError(ErrorCode.NOT_JSON, "the body is no text in the encoding that body_encoding names")
        if len(message.body) > limit:
            raise MessageError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(message.body)} bytes; the limit is {limit}: send fewer tickets or documents a message",
            )
        if message.content_type != "application/json":
            raise MessageError(ErrorCode.WRONG_CONTENT_TYPE, "content-type must be application/json")
        if not isinstance(message.content_encoding, str | None):
            raise MessageError(ErrorCode.NOT_JSON, "content-encoding must be a string")
        try:
            payload = message._decoded_cache = protocol.read_body(message.body)  # noqa: SLF001 - where kombu keeps it
        except Exception as exc:
            raise MessageError(ErrorCode.NOT_JSON, f"the body does not decode: {type(exc).__name__}") from exc
        task = protocol.task_name(message.headers, payload)
        if task not in self.strategies:
            raise MessageError(ErrorCode.UNKNOWN_TASK, f"this worker has no task {task[:200]!r}")

    def _refuse(self, message: Any, error: MessageError) -> None:  # noqa: ANN401 - kombu's message
        """Record the failure under the task id, if there is one, then take the message off the queue."""
        task_id = protocol.task_id(message.headers, message._decoded_cache)  # noqa: SLF001 - None if never decoded
        log.warning("message.refused", task_id=task_id, reason=str(error))
        self.app.tallies.add((JOBS, (REFUSED, "failed"), 1))
        if task_id is not None:
            self.app.backend.mark_as_failure(task_id, error)
            if self.event_dispatcher:
                self.event_dispatcher.send("task-failed", uuid=task_id, exception=repr(error))
        message.reject_log_error(kombu_log, self.connection_errors)
