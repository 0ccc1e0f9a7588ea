"""Who holds which message: the protocol of claims, leases, poison and commits, as typed calls over Lua scripts.

A message is in exactly one place: a queue's list, a worker's inbox, held under a claim, the dead letters, or gone. Each
script moves it from one to the next atomically, and whatever ends a hold compares the claim first: a worker that was
frozen past its lease finds its claim gone, and nothing that it does later has an effect. This module knows neither
Celery nor kombu; tests run it against a plain Python model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import ConnectionError, TimeoutError  # noqa: A004 - what this client raises

from schemas.names import Band
from worker import keys
from worker.loads import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import redis

    from worker.loads import Load
    from worker.rates import News

RENEW_AT_ONCE: Final = 500


class Held(NamedTuple):
    """A message that this worker holds: what identifies its claim."""

    queue: str
    tag: str
    task_id: str
    claim: str


class Drained(NamedTuple):
    """An entry of a queue as `drain` took it; usually a message."""

    held: Held
    crashes: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """What a job came to.

    Attributes:
        held: its message.
        results: key, encoded value, lifetime in seconds (0 = none).
        messages: list and message to push: what the job published.
        republished: one of `messages` carries this very task id (a retry): it inherits the claim.
    """

    held: Held
    results: Sequence[tuple[str, bytes | str, int]] = ()
    messages: Sequence[tuple[str, bytes | str]] = ()
    republished: bool = False


class Swept(NamedTuple):
    """What a sweep found."""

    given_back: int
    dead_lettered: int
    blamed: int


def total(swept: Iterable[Swept]) -> Swept:
    """Return the sums over some queues."""
    return Swept(*map(sum, zip(Swept(0, 0, 0), *swept, strict=True)))


@dataclass(frozen=True, slots=True)
class Terms:
    """How long things last. Seconds.

    Attributes:
        lease_s: without a sign of life for this long, a worker's messages go back.
        result_ttl_s: lifetime of results, and of the keys that tell doubled messages.
        max_crashes: a message that was in inference at this many deaths of its worker is dead-lettered.
        max_drain_bytes: a drain stops once it has taken this much.
    """

    lease_s: float = 12.0
    result_ttl_s: int = 86_400
    max_crashes: int = 3
    max_drain_bytes: int = 16 * 1024 * 1024


class Ledger:
    """The protocol, for one worker incarnation. Thread-safe as far as its client is; every call is one round trip.

    Args:
        client: any redis-py client of the broker's database.
        incarnation: `name:boot`, unique to this process; without white space.
        queues: the queues that this worker serves.
        terms: how long things last.
    """

    def __init__(self, client: redis.Redis, incarnation: str, queues: Sequence[str], terms: Terms) -> None:
        self.incarnation = incarnation
        self.queues = tuple(queues)
        self.client = client
        self._terms = terms
        self._numbers = {queue: number for number, queue in enumerate(self.queues, start=1)}
        self._claims = count(1)
        self._scripts = {name: client.register_script(_source(name)) for name in _SCRIPTS}

    def serve(self, queue: str) -> None:
        """Serve one more queue from now on."""
        if queue not in self._numbers:
            self.queues = (*self.queues, queue)
            self._numbers[queue] = len(self.queues)

    def drain(self, messages: int, queues: Sequence[str] | None = None, band: Band = Band.BULK) -> list[Drained]:
        """Take messages and hold them under a claim of their own.

        Args:
            messages: at most.
            queues: from which; None = from all.
            band: the least urgent to take.
        """
        queues = self.queues if queues is None else queues
        claim, wanted, arguments = self._drain(messages, queues, band, if_woken=False)
        return _drained(claim, self._run("drain", wanted, arguments))

    def drain_if_woken(
        self, messages: int, queues: Sequence[str], band: Band = Band.BULK
    ) -> tuple[list[Any], Callable[[Any], list[Drained]]]:
        """Return a command to send behind a wait, which drains if an inbox holds something, and its answer's reader.

        The server knows the script once `drain` has been called.
        """
        claim, wanted, arguments = self._drain(messages, queues, band, if_woken=True)
        command = ["EVALSHA", self._scripts["drain"].sha, len(wanted), *wanted, *arguments]
        return command, partial(_drained, claim)

    def renew(
        self,
        held: Sequence[Held],
        rates: Mapping[str, News] = MappingProxyType({}),
        loads: Mapping[str, Load] = MappingProxyType({}),
    ) -> set[str]:
        """Renew the worker's lease and those of what it holds; return the tags whose claims are lost.

        Args:
            held: what it holds.
            rates: by queue, what is new of its work; mixed into what workers said before.
            loads: by queue, how busy it was lately; none leaves what it said before.
        """
        lost: set[str] = set()
        stated = [part for queue, news in rates.items() for part in _stated(queue, news)]
        wanted = [keys.WORKERS, keys.INBOXES, keys.LOADS, keys.SERVICE_RATES, keys.UNIT_RATES, keys.MESSAGE_SIZES]
        wanted += map(keys.unacked_index, self.queues)
        lists = "\n".join(list_key for queue in self.queues for list_key in keys.lists(queue))
        common = [self.incarnation, lists, keys.JOB_PREFIX, self._terms.result_ttl_s, to_text(loads)]
        for start in range(0, max(len(held), 1), RENEW_AT_ONCE):
            arguments = [*common, len(stated), *stated]
            stated = []
            arguments += self._flat(held[start : start + RENEW_AT_ONCE])
            lost.update(tag.decode() for tag in self._run("renew", wanted, arguments))
        return lost

    def commit(self, commits: Sequence[Commit]) -> list[int]:
        """Record what a group of jobs came to; for each 1 = recorded, 0 = the claim was lost, 2 = cancelled."""
        terms = self._terms
        arguments: list[Any] = [keys.JOB_PREFIX, keys.RESULT_PREFIX, terms.result_ttl_s, terms.result_ttl_s]
        for one in commits:
            arguments += self._flat([one.held])
            arguments += [len(one.results), len(one.messages), int(one.republished)]
            arguments += [part for result in one.results for part in result]
            arguments += [part for message in one.messages for part in message]
        answers: list[int] = self._run("commit", [keys.CANCELLED, *self._held_keys()], arguments)
        return answers

    def done(self, held: Iterable[Held]) -> int:
        """Let go of messages that need nothing more; return for how many the claim still held."""
        return self._release("done", held)

    def give_back(self, held: Iterable[Held]) -> int:
        """Put messages back to the front of their lists; return for how many the claim still held."""
        return self._release("back", held)

    def sweep(self, limit: int = 100, *, blame: bool = True, former: str = "") -> Swept:
        """Do what `sweep_each` does; return the sums over the queues."""
        return total(self.sweep_each(limit, blame=blame, former=former).values())

    def sweep_each(self, limit: int = 100, *, blame: bool = True, former: str = "") -> dict[str, Swept]:
        """Give back what dead workers held, by queue: all whose lease has ended, or all of one `former` incarnation.

        Args:
            limit: messages of each queue.
            blame: count a crash against what was in inference; not right after the server itself has started.
            former: an incarnation that is known to be dead.
        """
        terms = self._terms
        found = {}
        for queue in self.queues:
            names = (keys.unacked, keys.unacked_index)
            swept = self._run(
                "sweep",
                [
                    *(name(queue) for name in names),
                    keys.WORKERS,
                    keys.RUNNING,
                    keys.dead(queue),
                    keys.dead_index(queue),
                ],
                [
                    *(
                        keys.JOB_PREFIX,
                        keys.RESULT_PREFIX,
                        terms.result_ttl_s,
                        terms.result_ttl_s,
                        terms.lease_s,
                        limit,
                    ),
                    *(terms.max_crashes if blame else 0, queue, former),
                ],
            )
            found[queue] = Swept(*swept)
        return found

    def tidy(self, former: str = "") -> int:
        """Empty the inboxes of dead workers into their queues, and forget the workers; return how many messages."""
        back: int = self._run(
            "tidy", [keys.WORKERS, keys.RUNNING, keys.INBOXES, keys.CANCELLED], [self._terms.lease_s, former]
        )
        return back

    def mark_running(self, runner: str, tags: Iterable[str]) -> None:
        """Note what is in inference on a runner, for `sweep` to blame."""
        self.client.hset(keys.RUNNING, f"{self.incarnation}:{runner}", " ".join(tags))

    def open_inboxes(self, queues: Sequence[str]) -> dict[str, str]:
        """Announce the lists that this worker may wait on; return the inbox of each list of `queues`."""
        self.renew([])
        return {key: keys.inbox(self.incarnation, key) for queue in queues for key in keys.lists(queue)}

    def _release(self, how: str, held: Iterable[Held]) -> int:
        arguments = [keys.JOB_PREFIX, self._terms.result_ttl_s, how, *self._flat(held)]
        released: int = self._run("release", self._held_keys(), arguments)
        return released

    def _flat(self, held: Iterable[Held]) -> list[Any]:
        return [part for one in held for part in (self._numbers[one.queue], one.tag, one.task_id, one.claim)]

    def _held_keys(self) -> list[str]:
        return [key for queue in self.queues for key in (keys.unacked(queue), keys.unacked_index(queue))]

    def _drain(
        self, messages: int, queues: Sequence[str], band: Band, *, if_woken: bool
    ) -> tuple[str, list[str], list[Any]]:
        """Return the claim, keys and arguments of a drain."""
        claim = f"{self.incarnation}:{next(self._claims)}"
        terms = self._terms
        arguments = [claim, messages, terms.max_drain_bytes, keys.JOB_PREFIX, keys.RESULT_PREFIX]
        arguments += [terms.result_ttl_s, terms.result_ttl_s, int(if_woken), *queues]
        wanted = [keys.CANCELLED]
        for queue in queues:
            wanted += [keys.unacked(queue), keys.unacked_index(queue)]
            for list_key in keys.lists(queue, band):
                wanted += [keys.inbox(self.incarnation, list_key), list_key]
        return claim, wanted, arguments

    def _run(self, name: str, wanted_keys: Sequence[str], arguments: Sequence[Any]) -> Any:  # noqa: ANN401 - as the script says
        try:
            return self._scripts[name](keys=wanted_keys, args=arguments)
        except (ConnectionError, TimeoutError):
            # The idle connections are no better: on one that is half open, the next try would wait for its timeout too.
            self.client.connection_pool.disconnect(inuse_connections=False)
            raise


def _drained(claim: str, taken: Sequence[tuple[bytes, bytes, bytes, int, bytes]]) -> list[Drained]:
    return [
        Drained(Held(queue.decode(), tag.decode(), task_id.decode(errors="replace"), claim), crashes, message)
        for queue, tag, task_id, crashes, message in taken
    ]


def _stated(queue: str, news: News) -> list[Any]:
    pace = "" if news.units_per_s is None else f"{news.units_per_s:.6g}"
    return [queue, pace, *(number for opened in news.opened for number in opened)]


_SCRIPTS: Final = ("drain", "renew", "commit", "release", "sweep", "tidy")


def _source(name: str) -> str:
    return resources.files("worker").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
