"""How much more work this worker takes: about a second of what it gets done, so that no worker hoards.

A few messages it takes however large they are: a ticket must not wait in the queue for a message of 10,000 to end. And
it fetches in portions: a round trip for each message that ends would cost more than a small model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from worker.custody import Custody
    from worker.engine import Engine
    from worker.fetching import Fetcher


FEW_MESSAGES: Final = 8
PORTIONS: Final = 8  # of the credit; with less than one of them free, the worker counts as full


class Credit:
    """Says how many messages to fetch. Called from the fetcher's thread; the pool attaches the engine.

    Args:
        custody: what is held.
        credit_s: seconds of its own work that the worker may hold waiting.
        min_items, max_items: bounds of that, in items.
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

    def __json__(self) -> dict[str, int]:
        """Return what `inspect stats` shows: it lists the transport's options."""
        return {"room": self()}

    def __call__(self, arrived: int = 0) -> int:
        """Return how many messages the worker has room for; 0 or less = none.

        Args:
            arrived: fetched, and not known to the engine yet.
        """
        if self.engine is None or self._custody.held_bytes >= self._max_bytes:
            return 0
        second = int(self.engine.items_per_s() * self._credit_s)
        credit = min(max(second, self._min_items), self._max_items)
        items = credit - self.engine.backlog() - arrived
        few = min(FEW_MESSAGES, self._max_items) - self.engine.jobs() - arrived
        return max(items if items * PORTIONS >= credit else 0, few)

    def changed(self) -> None:
        """Let the fetcher look again if it found no room: something has been done. Never blocks."""
        fetcher = self.fetcher
        if fetcher is not None:
            fetcher.room_changed()
