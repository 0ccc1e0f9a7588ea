"""Every key that the worker writes to Redis, in one place. docs/redis.md lists them with type and lifetime.

Queue lists and results are Celery's own; `schemas.names` spells the lists.
"""

from __future__ import annotations

from typing import Final

from schemas.names import PRIORITY_STEPS, Band, band_of, queue_lists, unacked_key

PREFIX: Final = "batchmill:"

JOB_PREFIX: Final = PREFIX + "job:"
"""String per task id, which lives as long as a result.

`H CLAIM QUEUE TAG CRASHES` held, `F CRASHES` free again, `R TAG CRASHES` free for the retry of that tag, `D` done.
"""

WORKERS: Final = PREFIX + "workers"
"""Sorted set: worker incarnation → its last sign of life."""

INBOXES: Final = PREFIX + "inboxes"
"""Hash: worker incarnation → the lists that it waits on, one a line."""

RUNNING: Final = PREFIX + "running"
"""Hash: incarnation:runner → the delivery tags in inference there."""

RATES: Final = PREFIX + "rates"
"""Hash: worker incarnation → tickets or pages a second that it gets done when busy."""

SERVICE_RATES: Final = PREFIX + "service_rates"
"""Hash: queue → messages a second that one busy worker of it gets done: the unit rate ÷ the mean size of a message."""

UNIT_RATES: Final = PREFIX + "unit_rates"
"""Hash: queue → units a second that one busy worker of it gets done, smoothed over workers and time."""

MESSAGE_SIZES: Final = PREFIX + "message_sizes"
"""Hash: queue, or `BAND QUEUE` → `UNITS MESSAGES` that its workers opened, older ones counting less, 50 or so."""

LOADS: Final = PREFIX + "loads"
"""Hash: worker incarnation → how busy it was lately, a line for each queue: interactive, normal, bulk, queue."""

BULK_DONE: Final = PREFIX + "bulk_done"
"""Sorted set: task of a bulk run → when the last run of it was finalised."""

CANCELLED: Final = PREFIX + "cancelled"
"""Sorted set: cancelled task id → when the cancel is forgotten."""

DOCTOR_PREFIX: Final = PREFIX + "doctor:"
"""String, for a moment: whether the database can be written."""

UNREADABLE_KEPT: Final = 1000
RESULT_PREFIX: Final = "celery-task-meta-"


def unacked(queue: str) -> str:
    """Hash: delivery tag → list, task id and message that a worker holds; its length is the work in flight."""
    return unacked_key(queue)


def unacked_index(queue: str) -> str:
    """Sorted set: delivery tag → when its lease was last renewed, in the server's time."""
    return f"{PREFIX}unacked_index:{queue}"


def inbox(incarnation: str, list_key: str) -> str:
    """List: what woke an idle worker, until it drains; a message at most for each of its lists."""
    return f"{PREFIX}inbox:{incarnation}:{list_key}"


def dead(queue: str) -> str:
    """Hash: task id → its dead letter, a JSON record; the newest 10,000 are kept."""
    return f"{PREFIX}dead:{queue}"


def dead_index(queue: str) -> str:
    """Sorted set: task id → when it was given up."""
    return f"{PREFIX}dead_index:{queue}"


def unreadable(queue: str) -> str:
    """List: entries of the queue that are no messages, as they came; the newest 1,000 are kept."""
    return f"{PREFIX}unreadable:{queue}"


def lists(queue: str, band: Band = Band.BULK) -> tuple[str, ...]:
    """The lists of a queue, one for each of kombu's priority steps down to a band, the most urgent first."""
    return queue_lists(queue)[: sum(band_of(step) <= band for step in PRIORITY_STEPS)]
