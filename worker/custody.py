"""What this worker holds right now: the transport fills it, the delivery empties it, the keeper renews it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.ledger import Drained, Held, Ledger


class Holding(NamedTuple):
    """A held message: its claim, how often its worker has died over it, and its size."""

    held: Held
    crashes: int
    message_bytes: int


class Custody:
    """The messages that this process holds, by delivery tag. Thread-safe.

    Args:
        ledger: where the claims are kept.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._holdings: dict[str, Holding] = {}
        self._changing = threading.Lock()
        self.held_bytes = 0  # Σ size of the held messages

    def __len__(self) -> int:
        """Return the number of held messages."""
        return len(self._holdings)

    def __json__(self) -> dict[str, int]:
        """Return what `inspect stats` shows: it lists the transport's options."""
        return {"held": len(self)}

    def __contains__(self, tag: object) -> bool:
        """Say whether a message is held under this delivery tag."""
        return tag in self._holdings

    def get(self, tag: str) -> Holding | None:
        """Return what is held under a delivery tag; None if nothing is, any more."""
        return self._holdings.get(tag)

    def held_of(self, queue: str) -> int:
        """Return how many messages of one queue are held."""
        return sum(holding.held.queue == queue for holding in list(self._holdings.values()))

    def crashes(self, tag: str) -> int:
        """Return how often a worker has died while it had this message in inference."""
        holding = self._holdings.get(tag)
        return 0 if holding is None else holding.crashes

    def take(self, drained: Iterable[Drained]) -> None:
        """Hold what was drained."""
        for one in drained:
            with self._changing:
                self._remove(one.held.tag)
                self._holdings[one.held.tag] = Holding(one.held, one.crashes, len(one.message))
                self.held_bytes += len(one.message)

    def all(self) -> list[Held]:
        """Return everything that is held."""
        return [holding.held for holding in list(self._holdings.values())]

    def forget(self, held: Iterable[Held]) -> None:
        """Hold these no more, without a word to the ledger: they are recorded, or their claims are lost.

        A message that has come again since is held under another claim, and stays.
        """
        for one in held:
            with self._changing:
                holding = self._holdings.get(one.tag)
                if holding is not None and holding.held == one:
                    self._remove(one.tag)

    def done(self, tag: str) -> None:
        """Let go of a message that needs nothing more."""
        holding = self._release(tag)
        if holding is not None:
            self.ledger.done([holding.held])

    def give_back(self, tags: Sequence[str]) -> int:
        """Put messages back to the front of their queues; return how many still were ours.

        Newest first, so that the oldest is served first again.
        """
        holdings = [holding for tag in reversed(tags) if (holding := self._release(tag)) is not None]
        return self.ledger.give_back([holding.held for holding in holdings]) if holdings else 0

    def tags(self) -> list[str]:
        """Return the tags of everything that is held, in order of arrival."""
        return list(self._holdings)

    def _release(self, tag: str) -> Holding | None:
        with self._changing:
            return self._remove(tag)

    def _remove(self, tag: str) -> Holding | None:
        holding = self._holdings.pop(tag, None)
        if holding is not None:
            self.held_bytes -= holding.message_bytes
        return holding
