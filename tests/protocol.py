"""The protocol of claims in plain Python: where each message must be after each call, and what the call answers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha1
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.names import Band
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from worker.ledger import Commit, Held

ALIVE: Final = 10_000_000  # ranks from here on are renewals; lower ones are leases that have ended
LONG_SILENT: Final = 1_000  # ranks below are of workers silent for more than three leases


def envelope(task_id: str, tag: str, serial: int) -> bytes:
    """A message as kombu writes it, as far as anybody looks at it."""
    properties = {"correlation_id": task_id, "delivery_tag": tag, "priority": 0}
    return json.dumps({"body": f"body {serial}", "headers": {"id": task_id}, "properties": properties}).encode()


def id_and_tag(message: bytes) -> tuple[str, str]:
    """What the message is called by."""
    properties = json.loads(message)["properties"]
    return properties["correlation_id"], properties["delivery_tag"]


def worker_of(claim: str) -> str:
    """The incarnation that a claim belongs to."""
    return claim.rsplit(":", 1)[0]


class Hold(NamedTuple):
    """A held message; a smaller `rank` was renewed earlier."""

    list_key: str
    task_id: str
    message: bytes
    claim: str
    crashes: int
    rank: int


@dataclass
class Protocol:
    """Everything that the server must hold. Lists have their front, which is served next, first."""

    queues: tuple[str, ...]
    max_crashes: int
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    inboxes: dict[str, list[bytes]] = field(default_factory=dict)
    held: dict[str, dict[str, Hold]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    dead: dict[str, dict[str, bytes]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    marks: dict[str, list[str]] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    sent: Counter[bytes] = field(default_factory=Counter)
    gone: Counter[bytes] = field(default_factory=Counter)
    _rank: int = ALIVE

    def __post_init__(self) -> None:
        """Start empty."""
        self.lists = {key: [] for queue in self.queues for key in keys.lists(queue)}
        self.held = {queue: {} for queue in self.queues}
        self.dead = {queue: {} for queue in self.queues}

    # What producers do.

    def send(self, list_key: str, message: bytes) -> None:
        """A message comes."""
        self.lists[list_key].append(message)
        self.sent[message] += 1

    # What workers do.

    def drain(
        self, claim: str, messages: int, queues: Sequence[str], band: Band = Band.BULK
    ) -> list[tuple[str, str, str, int, bytes]]:
        """Return queue, tag, id, crashes and message of what is held from now on."""
        taken: list[tuple[str, str, str, int, bytes]] = []
        left, self._rank = messages, self._rank + 1
        for lists in zip(*(keys.lists(queue, band) for queue in queues), strict=True):
            share = ceil(left / len(queues))
            for most in (share, messages):
                for queue, list_key in zip(queues, lists, strict=True):
                    sources = (self.inbox(worker_of(claim), list_key), self.lists[list_key])
                    enough = len(taken) + min(most, left)
                    while any(sources) and len(taken) < enough:
                        message = next(filter(None, sources)).pop(0)
                        taken += self._hold(claim, queue, list_key, message, queues)
                    left = messages - len(taken)
        return taken

    def wake(self, worker: str, list_key: str) -> None:
        """A wait moves the front of the list into the inbox."""
        if self.lists[list_key]:
            self.inbox(worker, list_key).append(self.lists[list_key].pop(0))

    def renew(self, worker: str, held: Iterable[Held]) -> set[str]:
        """Return the tags of lost claims."""
        self._rank += 1
        self.workers[worker] = self._rank
        lost = set()
        for one in held:
            if self.owns(one):
                hold = self.held[one.queue][one.tag]
                self.held[one.queue][one.tag] = hold._replace(rank=self._rank)
            else:
                lost.add(one.tag)
        return lost

    def commit(self, commits: Iterable[Commit]) -> list[int]:
        """Return what became of each."""
        return [self._commit(one) if self.owns(one.held) else 0 for one in commits]

    def done(self, held: Iterable[Held]) -> int:
        """Return how many were let go."""
        ours = [one for one in held if self.owns(one)]
        for one in ours:
            self.gone[self._release(one, "D").message] += 1
        return len(ours)

    def give_back(self, held: Iterable[Held]) -> int:
        """Return how many went back to the front of their lists."""
        ours = [one for one in held if self.owns(one)]
        for one in ours:
            crashes = self.held[one.queue][one.tag].crashes
            hold = self._release(one, f"F {crashes}")
            self.lists[hold.list_key].insert(0, hold.message)
        return len(ours)

    # What time and the living do to the dead.

    def expire(self, worker: str, ranks: Iterator[int]) -> dict[str, dict[str, int]]:
        """End a worker's lease and those of what it holds; return the new ranks of the tags, by queue."""
        if worker in self.workers:
            self.workers[worker] = next(ranks)
        changed: dict[str, dict[str, int]] = {}
        for queue, holds in self.held.items():
            mine = [tag for tag, hold in holds.items() if worker_of(hold.claim) == worker]
            changed[queue] = {tag: next(ranks) for tag in mine}
            holds.update({tag: holds[tag]._replace(rank=rank) for tag, rank in changed[queue].items()})
        return changed

    def sweep(self, limit: int, *, blame: bool, former: str = "") -> tuple[int, int, int]:
        """Return how many were given back, dead-lettered, blamed."""
        counts: Counter[str] = Counter()
        for queue in self.queues:
            tags = self.index(queue)
            if former:
                due = [tag for tag in tags if worker_of(self.held[queue][tag].claim) == former]
            else:
                due = [tag for tag in tags if self.held[queue][tag].rank < ALIVE][:limit]
            for tag in due:
                counts.update(self._sweep(queue, tag, blame=blame))
        return counts["back"], counts["dead"], counts["blamed"]

    def tidy(self, former: str = "") -> int:
        """Return how many messages of dead workers' inboxes went back."""
        by_rank = sorted(self.workers, key=lambda worker: (self.workers[worker], worker))
        silent = [former] if former else [worker for worker in by_rank if self.workers[worker] < ALIVE]
        back = 0
        for worker in silent:
            for list_key in self.lists if worker in self.workers else ():
                waiting = self.inbox(worker, list_key)
                back += len(waiting)
                self.lists[list_key][:0] = waiting
                waiting.clear()
        for worker in silent:
            if former or self.workers[worker] < LONG_SILENT:
                self.workers.pop(worker, None)
        self.marks = {field: tags for field, tags in self.marks.items() if worker_of(field) in self.workers}
        return back

    # What must be where.

    def owns(self, held: Held) -> bool:
        """Whether a claim still holds."""
        hold = self.held[held.queue].get(held.tag)
        return hold is not None and (hold.claim, hold.task_id) == (held.claim, held.task_id)

    def index(self, queue: str) -> list[str]:
        """The held tags, the longest without a renewal first."""
        holds = self.held[queue]
        return sorted(holds, key=lambda tag: (holds[tag].rank, tag))

    def inbox(self, worker: str, list_key: str) -> list[bytes]:
        """An inbox."""
        return self.inboxes.setdefault(keys.inbox(worker, list_key), [])

    def everywhere(self) -> Counter[bytes]:
        """Every message in every place."""
        found = Counter(self.gone)
        for waiting in (*self.lists.values(), *self.inboxes.values()):
            found.update(waiting)
        for queue in self.queues:
            found.update(hold.message for hold in self.held[queue].values())
            found.update(self.dead[queue].values())
        return found

    def _hold(
        self, claim: str, queue: str, list_key: str, message: bytes, queues: Sequence[str]
    ) -> list[tuple[str, str, str, int, bytes]]:
        task_id, tag = id_and_tag(message)
        state = self.jobs.get(task_id, "F 0")
        if not state.startswith(("F", f"R {tag} ")):
            self.gone[message] += 1
            return []
        if task_id in self.cancelled:
            self.gone[message] += 1
            self.jobs[task_id], self.results[task_id] = "D", "REVOKED"
            return []
        if any(tag in self.held[drained] for drained in queues):
            tag = renamed(message)
        crashes = int(state.split()[-1])
        self.held[queue][tag] = Hold(list_key, task_id, message, claim, crashes, self._rank)
        self.jobs[task_id] = f"H {claim} {queue} {tag} {crashes}"
        return [(queue, tag, task_id, crashes, message)]

    def _release(self, held: Held, state: str) -> Hold:
        self.jobs[held.task_id] = state
        return self.held[held.queue].pop(held.tag)

    def _commit(self, one: Commit) -> int:
        task_id = one.held.task_id
        is_cancelled = task_id in self.cancelled
        heirs = [tag for sent_id, tag in map(id_and_tag, (text for _, text in one.messages)) if sent_id == task_id]
        free = f"R {heirs[0]} 0" if heirs else "F 0"
        state = free if one.republished and not is_cancelled else "D"
        self.gone[self._release(one.held, state).message] += 1
        if is_cancelled:
            self.results[task_id] = "REVOKED"
            return 2
        for _, value, _ in one.results:
            self.results[task_id] = json.loads(value)["status"]
        for list_key, message in one.messages:
            self.send(list_key, message if isinstance(message, bytes) else message.encode())
        return 1

    def _sweep(self, queue: str, tag: str, *, blame: bool) -> list[str]:
        hold = self.held[queue].pop(tag)
        worker = worker_of(hold.claim)
        marked = any(tag in tags for field, tags in self.marks.items() if worker_of(field) == worker)
        blamed = ["blamed"] if blame and marked else []
        crashes = hold.crashes + len(blamed)
        if blame and crashes >= self.max_crashes:
            self.dead[queue][hold.task_id] = hold.message
            self.jobs[hold.task_id], self.results[hold.task_id] = "D", "FAILURE"
            return [*blamed, "dead"]
        self.lists[hold.list_key].insert(0, hold.message)
        self.jobs[hold.task_id] = f"F {crashes}"
        return [*blamed, "back"]


def renamed(message: bytes) -> str:
    """The tag of a message whose own is in use."""
    return sha1(message, usedforsecurity=False).hexdigest()
