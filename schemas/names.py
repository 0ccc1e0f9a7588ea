"""Names and numbers that a producer and a worker must agree on: task, queue, header, priority bands.

They exist once, here, so that neither side spells a queue or a band by hand.
This module does not know how a queue is drained or how a band is scheduled.
"""

from enum import IntEnum
from typing import Final

TASK_CLASSIFY: Final = "classify.tickets"
QUEUE_CLASSIFY: Final = "classify"

TASK_OCR_DOCUMENTS: Final = "ocr.documents"
QUEUE_OCR: Final = "ocr"

TASK_BULK_CLASSIFY: Final = "bulk.classify"
TASK_BULK_OCR: Final = "bulk.ocr"
TASK_BULK_SHARD: Final = "bulk.shard"
QUEUE_BULK: Final = "bulk"
QUEUE_BULK_OCR: Final = "bulk-ocr"
"""Runs that read documents have a queue of their own: workers of `bulk` need no OCR model, nor these a classifier."""

ENQUEUED_AT_HEADER: Final = "enqueued_at"
"""Optional message header: when the producer enqueued the message, in Unix seconds (a float)."""

PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9


class Band(IntEnum):
    """What a message's priority means to the scheduler; the smaller value is served first."""

    INTERACTIVE = 0
    NORMAL = 1
    BULK = 2


_BANDS: Final = (
    (Band.INTERACTIVE,) * 3  # 0 to 2
    + (Band.NORMAL,) * 3  # 3 to 5
    + (Band.BULK,) * 4  # 6 to 9
)


def band_of(priority: int | None) -> Band:
    """The band of a message's `priority` property.

    An absent priority is interactive: kombu writes it as 0 on Redis, and serves 0 first.

    Raises:
        ValueError: the priority is not an integer between 0 and 9.
    """
    if priority is None:
        return Band.INTERACTIVE
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        text = f"the message's priority must be an integer between {PRIORITY_MIN} and {PRIORITY_MAX}"
        raise ValueError(text)
    return _BANDS[priority]


PRIORITY_BULK_SHARD: Final = 6
"""The priority of a `bulk.shard` message: behind whatever a person or a service waits for."""

PRIORITY_STEPS: Final = (0, 3, 6, 9)
"""A queue is a list for each of these priorities, in between rounded down: kombu's default."""

_SEPARATOR: Final = "\x06\x16"
_UNACKED_PREFIX: Final = "batchmill:unacked:"


def queue_lists(queue: str) -> tuple[str, ...]:
    """The Redis lists of a queue, the most urgent first."""
    return tuple(f"{queue}{_SEPARATOR}{step}" if step else queue for step in PRIORITY_STEPS)


def unacked_key(queue: str) -> str:
    """The Redis hash of the messages that workers hold; its length is the work in flight."""
    return f"{_UNACKED_PREFIX}{queue}"
