"""Deletes what is stored: results by prefix, and everything that holds one ticket's id.

The second goes the way that a ticket goes, from the queue to the result, so that what moves on meanwhile is met further
down. Whole entries go: a message, or a result, of many tickets goes with all of them. What a worker holds is left
alone, counted, and has its result later: purge again until nothing is held.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from worker import keys
from worker.ops import dead
from worker.ops.envelopes import describe, holds_ticket, mentions, quotations
from worker.ops.queues import inboxes
from worker.ops.scripts import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import redis

RESULTS_AT_ONCE = 200
MESSAGES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted, and what was left.

    Attributes:
        queued: messages that waited; their jobs end as revoked.
        dead_letters, unreadable, results: entries of each kind.
        held: messages that workers hold; left alone, for each will have a result.
    """

    queued: int
    dead_letters: int
    unreadable: int
    results: int
    held: int


def purge_results(client: redis.Redis, prefix: str) -> int:
    """Delete the results of every task id that starts with `prefix`, which is taken literally; return how many.

    The ids are new again: a message of such an id runs.
    """
    return sum(_forget(client, found) for found in _results(client, prefix))


def purge_ticket(client: redis.Redis, queues: Sequence[str], ticket_id: str, result_ttl_s: int) -> Purged:
    """Delete everything in the database that holds a ticket of this id, but for what workers hold.

    Reads every message and looks through every result: seconds for some 100,000 of them.

    Args:
        client: without `decode_responses`.
        queues: to look into.
        ticket_id: the ticket's, not the task's.
        result_ttl_s: how long it is remembered that the withdrawn messages have ended.
    """
    held = _held(client, queues, ticket_id)
    queued = sum(_purge_lists(client, queue, ticket_id, result_ttl_s) for queue in queues)
    unreadable = sum(_purge_list(client, keys.unreadable(queue), ticket_id, result_ttl_s) for queue in queues)
    letters = sum(_purge_letters(client, queue, ticket_id) for queue in queues)
    held |= _held(client, queues, ticket_id)
    return Purged(queued, letters, unreadable, _purge_mentions(client, ticket_id), len(held))


def _purge_lists(client: redis.Redis, queue: str, ticket_id: str, result_ttl_s: int) -> int:
    taken = inboxes(client)
    sources = [key for list_key in keys.lists(queue) for key in (list_key, *taken.get(list_key, ()))]
    return sum(_purge_list(client, key, ticket_id, result_ttl_s) for key in sources)


def _purge_list(client: redis.Redis, key: str, ticket_id: str, result_ttl_s: int) -> int:
    """Remove a list's entries with the ticket, after all of it is read: removals would shift what is still to read."""
    found = {entry for entry in _entries(client, key) if holds_ticket(entry, ticket_id)}
    removed = 0
    for entry in found:
        envelope = describe(entry)
        task_id = (envelope and envelope.task_id) or ""
        arguments = (keys.JOB_PREFIX, keys.RESULT_PREFIX, result_ttl_s, result_ttl_s, task_id, entry)
        removed += run(client, "withdraw", [key], *arguments)
    return removed


def _entries(client: redis.Redis, key: str) -> Iterator[bytes]:
    """Yield a list's entries from the newest on: what producers add or workers take meanwhile hides none."""
    first = 0
    while found := cast("list[bytes]", client.lrange(key, first, first + MESSAGES_AT_ONCE - 1)):
        yield from found
        first += MESSAGES_AT_ONCE


def _purge_letters(client: redis.Redis, queue: str, ticket_id: str) -> int:
    found = [task_id for task_id, message in dead.messages(client, queue) if holds_ticket(message, ticket_id)]
    return dead.remove(client, [queue], found) if found else 0


def _held(client: redis.Redis, queues: Iterable[str], ticket_id: str) -> set[bytes]:
    """Return the delivery tags of the held messages with the ticket."""
    return {
        tag
        for queue in queues
        for tag, value in client.hscan_iter(keys.unacked(queue), count=MESSAGES_AT_ONCE)
        if holds_ticket(value.split(b"\n", 2)[2], ticket_id)
    }


def _purge_mentions(client: redis.Redis, ticket_id: str) -> int:
    texts = quotations(ticket_id)
    deleted = 0
    for found in _results(client, ""):
        candidates = [found[position - 1] for position in run(client, "mentioning", found, *texts)]
        values: list[Any] = client.mget(candidates) if candidates else []
        pairs = zip(candidates, values, strict=True)
        deleted += _forget(client, [key for key, value in pairs if value and mentions(value, ticket_id)])
    return deleted


def _results(client: redis.Redis, prefix: str) -> Iterator[list[str]]:
    """Yield the keys of results in portions; one that comes or goes meanwhile may be left out."""
    pattern = keys.RESULT_PREFIX + re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
    cursor, more = 0, True
    while more:
        cursor, found = client.scan(cursor, match=pattern, count=RESULTS_AT_ONCE, _type="string")
        more = cursor != 0
        if found:
            yield [key.decode() for key in cast("list[bytes]", found)]


def _forget(client: redis.Redis, result_keys: Sequence[str]) -> int:
    if not result_keys:
        return 0
    deleted: int = run(client, "forget", result_keys, keys.JOB_PREFIX, keys.RESULT_PREFIX)
    return deleted
