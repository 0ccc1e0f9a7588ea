"""A worker that only keeps its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.services import wait_until
from worker.custody import Custody
from worker.keeper import Keeper
from worker.ledger import Ledger, Terms
from worker.metering import Meter
from worker.tallies import Tallies

if TYPE_CHECKING:
    import redis

QUEUE: Final = "classify"


class Kept:
    """A worker that is nothing but its keeper.

    Attributes:
        lost: what it was told to be lost.
        deaths: one for each time that it was told of dead letters.
        revoked: what Celery has heard.
        meter: what it says of its queues.
        heard: one for each time that the broker answered.
    """

    def __init__(self, client: redis.Redis, incarnation: str, lease_s: float) -> None:
        terms = Terms(lease_s=lease_s, result_ttl_s=500)
        self.ledger = Ledger(client, incarnation, [QUEUE], terms)
        self.custody = Custody(self.ledger)
        self.lost: list[set[str]] = []
        self.deaths: list[None] = []
        self.revoked: set[str] = set()
        self.rate = 12.345
        self.meter = Meter()
        self.tallies = Tallies()
        self.heard: list[None] = []
        self.keeper = Keeper(
            self.custody,
            terms,
            on_lost=self.lost.append,
            on_dead=lambda: self.deaths.append(None),
            revoked=lambda: self.revoked,
            rate=lambda: self.rate,
            meter=self.meter,
            tallies=self.tallies,
            heard=lambda: self.heard.append(None),
        )

    def take(self, messages: int = 100) -> None:
        """Hold what waits."""
        self.custody.take(self.ledger.drain(messages))


def wait_swept(client: redis.Redis, times: int = 3) -> None:
    """Wait until the sweep has come by some more times."""

    def calls() -> int:
        return int(client.info("commandstats").get("cmdstat_info", {"calls": 0})["calls"])

    before = calls()
    asked = 0

    def has_come_by() -> bool:
        nonlocal asked
        asked += 1
        return calls() - asked >= before + times

    wait_until(has_come_by)
