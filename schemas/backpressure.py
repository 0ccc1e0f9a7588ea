"""Back-pressure for producers: `guard` refuses to let a queue grow without end, in one round trip.

    from schemas.backpressure import QueueFull, guard

    guard(app, "classify", max_messages=100_000, max_bytes=512 * 1024 * 1024)   # raises QueueFull
    app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify")

A full Redis refuses everybody; a capped queue tells one producer to wait. It takes the producer's own Celery
application or redis-py client and imports neither, so a service can copy this file. It knows nothing of results, nor of
what else fills the database.

What it costs: one pipeline of five O(1) commands; with `max_bytes` of ten. Asking and sending are two steps, so that
n producers may overshoot a cap by n messages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from schemas.names import queue_lists, unacked_key

SAMPLES: Final = 64
"""List nodes, or hash fields, whose size stands for all; a node is a large message, or 8 KiB of small ones."""


@dataclass(frozen=True, slots=True)
class Depth:
    """What a queue holds: messages that wait, and those that workers hold.

    Attributes:
        messages: how many, exactly.
        size_bytes: the server's memory for them, estimated from the newest; None without `max_bytes`.
    """

    messages: int
    size_bytes: int | None = None


class QueueFull(Exception):  # noqa: N818 - reads as what happened
    """The queue holds as much as the producer allows: wait, slow down, or drop the work.

    Attributes:
        queue: its name.
        unit: what there is too much of.
        depth: how much there is.
        limit: how much the producer allows.
    """

    def __init__(self, queue: str, unit: Literal["messages", "bytes"], depth: int, limit: int) -> None:
        super().__init__(queue, unit, depth, limit)
        self.queue = queue
        self.unit = unit
        self.depth = depth
        self.limit = limit

    def __str__(self) -> str:
        return f"queue {self.queue} is full: {self.depth} {self.unit}, the limit is {self.limit}"


def guard(
    client_or_app: Any,  # noqa: ANN401 - a redis.Redis or a celery.Celery, neither of which is imported here
    queue: str,
    *,
    max_messages: int | None = None,
    max_bytes: int | None = None,
) -> Depth:
    """Raise if the queue has reached a cap, else return what it holds. Blocks for one round trip.

    Args:
        client_or_app: a redis-py client of the broker's database (not an asyncio one), or a Celery application
            whose broker it is.
        queue: its name.
        max_messages: messages that may wait or be held, over all priorities.
        max_bytes: memory of the server that they may take, as it measures it. The server looks at `SAMPLES` nodes
            of each list, from the newest on, so a jump in message size shows once that many of the new size wait.

    Raises:
        QueueFull: a cap is reached; its text names depth and limit.
        ValueError: there is no cap.
    """
    if max_messages is None and max_bytes is None:
        raise ValueError("give max_messages, max_bytes or both")
    with _client_of(client_or_app) as client:
        depth = _measure(client, queue, with_size=max_bytes is not None)
    if max_messages is not None and depth.messages >= max_messages:
        raise QueueFull(queue, "messages", depth.messages, max_messages)
    if max_bytes is not None and depth.size_bytes is not None and depth.size_bytes >= max_bytes:
        raise QueueFull(queue, "bytes", depth.size_bytes, max_bytes)
    return depth


@contextmanager
def _client_of(client_or_app: Any) -> Iterator[Any]:  # noqa: ANN401 - see `guard`
    """Give the client itself, or that of the connection on which the application will send."""
    if not hasattr(client_or_app, "producer_or_acquire"):
        yield client_or_app
        return
    with client_or_app.producer_or_acquire() as producer, producer.channel.conn_or_acquire() as client:
        yield client


def _measure(client: Any, queue: str, *, with_size: bool) -> Depth:  # noqa: ANN401 - see `guard`
    lists, held = queue_lists(queue), unacked_key(queue)
    with client.pipeline(transaction=False) as pipe:
        for key in lists:
            pipe.llen(key)
        pipe.hlen(held)
        if with_size:
            for key in (*lists, held):
                pipe.memory_usage(key, samples=SAMPLES)
        answers = pipe.execute()
    counted = len(lists) + 1
    size_bytes = sum(size or 0 for size in answers[counted:]) if with_size else None
    return Depth(sum(answers[:counted]), size_bytes)
