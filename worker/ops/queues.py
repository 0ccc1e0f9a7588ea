"""How full the queues are and who works on them: what `batchmill queues` shows and an autoscaler asks.

Two round trips, whatever the queues hold: lengths, and the end of each list's next message. It moves nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.names import PRIORITY_STEPS
from worker import keys
from worker.loads import NO_LOAD, Load, from_text
from worker.ops.scripts import put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import redis
    from redis.client import Pipeline


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue at one moment. Times are seconds by the server's clock.

    Attributes:
        queue: its name.
        waiting: messages that wait, for each of `schemas.names.PRIORITY_STEPS`.
        oldest_age_s: how long the oldest of them has waited by its header `enqueued_at`; None = no producer says.
        oldest_age_is_lower_bound: a list's next message does not say, and may have waited longer.
        in_flight: messages that workers hold.
        overdue: those of them whose lease has ended; the next sweep gives them back.
        stalest_lease_s: since when no lease in flight is older; None = nothing is in flight.
        dead: dead letters.
        unreadable: entries that were no messages.
        items_per_s: what its live workers say they get done when busy.
        load: how many workers were busy with it lately, by `schemas.names.Band`; the word of those whose lease holds.
    """

    queue: str
    waiting: tuple[int, ...]
    oldest_age_s: float | None
    oldest_age_is_lower_bound: bool
    in_flight: int
    overdue: int
    stalest_lease_s: float | None
    dead: int
    unreadable: int
    items_per_s: float
    load: Load = NO_LOAD


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker that has given a sign of life within three leases.

    Attributes:
        incarnation: `name:host/namespace/pid/random`.
        silent_s: seconds since its last sign of life.
        items_per_s: what it gets done when busy; None = it has not said.
        queues: that it serves.
        in_inference: messages in its running batches.
        loads: by queue, the share of its time that it was busy lately, by `schemas.names.Band`.
    """

    incarnation: str
    silent_s: float
    items_per_s: float | None
    queues: tuple[str, ...]
    in_inference: int
    loads: Mapping[str, Load]


@dataclass(frozen=True, slots=True)
class Survey:
    """Queues and workers at one moment."""

    queues: tuple[QueueState, ...]
    workers: tuple[WorkerState, ...]


class _Fleet(NamedTuple):
    """Who works: the server's time, the live workers, and the inboxes by the list that they are filled from."""

    now_s: float
    workers: tuple[WorkerState, ...]
    inboxes: Mapping[str, Sequence[str]]


def survey(client: redis.Redis, queues: Iterable[str], lease_s: float) -> Survey:
    """Return the state of `queues`, and of every queue that a live worker serves.

    Args:
        client: without `decode_responses`.
        queues: to report on even if nobody serves them.
        lease_s: of the workers; leases older than that are overdue.
    """
    fleet = _fleet(client)
    names = _names(fleet, queues)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            _ask(pipe, name, fleet, lease_s)
        answers = iter(pipe.execute())
    return Survey(tuple(_queue_state(name, fleet, answers, lease_s) for name in names), fleet.workers)


def known_queues(client: redis.Redis, queues: Iterable[str]) -> list[str]:
    """Return `queues`, and every queue that a live worker serves, sorted."""
    return _names(_fleet(client), queues)


def inboxes(client: redis.Redis) -> dict[str, Sequence[str]]:
    """Return the keys of the inboxes that hold what workers are about to take, by the list that it came from."""
    return dict(_fleet(client).inboxes)


def _names(fleet: _Fleet, queues: Iterable[str]) -> list[str]:
    return sorted({*queues, *(queue for worker in fleet.workers for queue in worker.queues)})


def _fleet(client: redis.Redis) -> _Fleet:
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.zrange(keys.WORKERS, 0, -1, withscores=True)
        for key in (keys.INBOXES, keys.RATES, keys.RUNNING, keys.LOADS):
            pipe.hgetall(key)
        (seconds, micros), seen, lists, rates, running, loads = pipe.execute()
    now_s = seconds + micros / 1e6
    lists_of = {name.decode(): value.decode().split("\n") for name, value in lists.items()}
    inboxes: dict[str, list[str]] = {}
    for name, list_keys in lists_of.items():
        for list_key in list_keys:
            inboxes.setdefault(list_key, []).append(keys.inbox(name, list_key))
    batches = Counter[bytes]()
    for field, tags in running.items():
        batches[field.rpartition(b":")[0]] += len(tags.split())
    workers = tuple(
        WorkerState(
            incarnation=name.decode(),
            silent_s=max(0.0, now_s - seen_s),
            items_per_s=float(rates[name]) if name in rates else None,
            queues=tuple(lists_of.get(name.decode(), ())[:: len(PRIORITY_STEPS)]),
            in_inference=batches[name],
            loads=from_text(loads.get(name, b"").decode()),
        )
        for name, seen_s in seen
    )
    return _Fleet(now_s, workers, inboxes)


def _ask(pipe: Pipeline, queue: str, fleet: _Fleet, lease_s: float) -> None:
    """Put the questions about one queue into the pipeline; `_queue_state` reads the answers in this order."""
    for list_key in keys.lists(queue):
        for key in (list_key, *fleet.inboxes.get(list_key, ())):
            pipe.llen(key)
        put(pipe, "waiting", [list_key], -1, -1, "")
    pipe.hlen(keys.unacked(queue))
    pipe.zcount(keys.unacked_index(queue), "-inf", fleet.now_s - lease_s)
    pipe.zrange(keys.unacked_index(queue), 0, 0, withscores=True)
    pipe.hlen(keys.dead(queue))
    pipe.llen(keys.unreadable(queue))


def _queue_state(queue: str, fleet: _Fleet, answers: Iterator[Any], lease_s: float) -> QueueState:
    waiting, next_ones = [], []
    for list_key in keys.lists(queue):
        waiting.append(sum(next(answers) for _ in (list_key, *fleet.inboxes.get(list_key, ()))))
        next_ones += next(answers)
    stated = [float(enqueued_at) for _, _, enqueued_at, _, _ in next_ones if enqueued_at]
    in_flight, overdue, stalest = next(answers), next(answers), next(answers)
    return QueueState(
        queue=queue,
        waiting=tuple(waiting),
        oldest_age_s=max(0.0, fleet.now_s - min(stated)) if stated else None,
        oldest_age_is_lower_bound=len(stated) < len(next_ones),
        in_flight=in_flight,
        overdue=overdue,
        stalest_lease_s=fleet.now_s - stalest[0][1] if stalest else None,
        dead=next(answers),
        unreadable=next(answers),
        items_per_s=sum(worker.items_per_s or 0.0 for worker in fleet.workers if queue in worker.queues),
        load=_load(queue, fleet, lease_s),
    )


def _load(queue: str, fleet: _Fleet, lease_s: float) -> Load:
    """Return what workers say of a queue; what a worker held whose lease has ended counts as waiting again."""
    said = [worker.loads.get(queue, NO_LOAD) for worker in fleet.workers if worker.silent_s <= lease_s]
    interactive, normal, bulk = (sum(shares) for shares in zip(NO_LOAD, *said, strict=True))
    return interactive, normal, bulk
