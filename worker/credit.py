"""How much more work this worker takes: about a second of what it gets done, so that no worker hoards.

A few messages it takes however large they are, and before it knows its pace: a ticket must not wait in the queue for a
message of 10,000 to end, nor an urgent one for any number that are less urgent, so that each band has those few of its
own. And it fetches in portions: a round trip for each message that ends would cost more than a small model. Of the
queues whose messages run outside the batcher, each for a minute, it takes as many as it has slots for, and fetches none
ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.names import Band
from worker.quota import Quota

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.custody import Custody
    from worker.engine import Engine
    from worker.fetching import Fetcher
    from worker.vitals import Vitals


FEW_MESSAGES: Final = 8
LEAST_S: Final = 2.0  # of its work, where `min_items` would be more than that
PORTIONS: Final = 8  # of the credit; with less than one of them free, the worker counts as full
NONE: Final = Quota(0)


class Credit:
    """Says how many messages of batched tasks to fetch. Called from the fetcher's thread.

    Args:
        custody: what is held.
        credit_s: seconds of its own work that the worker may hold waiting.
        min_items, max_items: bounds of that, in items; slow ones may be fewer.
        max_bytes: size of the held messages beyond which nothing is fetched.
    """

    def __init__(self, custody: Custody, *, credit_s: float, min_items: int, max_items: int, max_bytes: int) -> None:
        self._custody = custody
        self._credit_s = credit_s
        self._min_items = min_items
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.engine: Engine | None = None
        self.fetcher: Fetcher | None = None

    def __call__(self, arrived: int = 0) -> Quota:
        """Return what messages the worker has room for.

        Args:
            arrived: fetched, and not known to the engine yet.
        """
        if self.engine is None or self._custody.held_bytes >= self._max_bytes:
            return NONE
        pace = self.engine.units_per_s()
        least = min(self._min_items, int(pace * LEAST_S))
        credit = min(max(int(pace * self._credit_s), least), self._max_items)
        items = credit - self.engine.backlog() - arrived
        few = min(FEW_MESSAGES, self._max_items) - arrived
        by_band = {band: few - self.engine.jobs(band) for band in Band}
        by_band[Band.BULK] = max(items if items * PORTIONS >= credit else 0, by_band[Band.BULK])
        return next((Quota(by_band[band], band) for band in reversed(Band) if by_band[band] > 0), NONE)


class Slots:
    """Says how many messages of one queue to fetch, each of which occupies a slot until it is recorded.

    Args:
        custody: what is held.
        queue: the queue.
        slots: how many run at a time.
    """

    def __init__(self, custody: Custody, queue: str, slots: int) -> None:
        self._custody = custody
        self._queue = queue
        self.slots = slots
        self.engine: Engine | None = None
        self.fetcher: Fetcher | None = None

    def __call__(self, arrived: int = 0) -> Quota:  # noqa: ARG002 - what has arrived is held already
        """Return how many slots are free; none before there is an engine."""
        return NONE if self.engine is None else Quota(self.slots - self._custody.held_of(self._queue))


class Room:
    """What limits the messages of each queue. The pool attaches the engine, the transport its fetchers.

    Args:
        credit: of all queues but those with slots.
        slots: by queue.
        vitals: told whenever a fetcher has completed a cycle.
    """

    def __init__(self, credit: Credit, slots: Mapping[str, Slots], vitals: Vitals) -> None:
        self.credit = credit
        self.slots = slots
        self.vitals = vitals

    def __json__(self) -> dict[str, int]:
        """Return what `inspect stats` shows: it lists the transport's options."""
        limits: dict[str, Credit | Slots] = {"credit": self.credit, **self.slots}
        return {name: limit().messages for name, limit in limits.items()}

    def attach(self, engine: Engine) -> None:
        """Fetch from now on."""
        for limit in self._limits():
            limit.engine = engine

    def by_limit(self, queues: Sequence[str]) -> dict[Credit | Slots, tuple[str, ...]]:
        """Return the queues that share a limit, for one fetcher each."""
        shared = tuple(queue for queue in queues if queue not in self.slots)
        alone: dict[Credit | Slots, tuple[str, ...]] = {
            self.slots[queue]: (queue,) for queue in queues if queue in self.slots
        }
        return alone | ({self.credit: shared} if shared else {})

    def changed(self) -> None:
        """Let the fetchers that found no room look again: something has been done. Never blocks."""
        for limit in self._limits():
            fetcher = limit.fetcher
            if fetcher is not None:
                fetcher.room_changed()

    def _limits(self) -> tuple[Credit | Slots, ...]:
        return (self.credit, *self.slots.values())
