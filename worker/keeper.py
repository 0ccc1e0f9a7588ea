"""Keeps the claims: renews this worker's leases, sweeps those of the dead, and makes cancels last.

One thread with a connection of its own, so that neither a busy event loop nor a long batch costs a lease. All times are
the server's: a worker's clock may be an hour off. The sweep is one script a queue and needs no lock; any number of
workers may sweep at once, and none can block the others by dying (kombu#1190).
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis.exceptions import RedisError

from worker import keys
from worker.incarnation import has_died
from worker.ledger import total
from worker.metrics import DEAD_LETTERS, LEASE_RENEWALS, REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from worker.custody import Custody
    from worker.ledger import Held, Swept, Terms
    from worker.metering import Meter
    from worker.tallies import Tallies

log = structlog.get_logger(__name__)

RENEWALS_PER_LEASE: Final = 3
SWEEP_EVERY_S: Final = 1.0
SILENT_RENEWALS: Final = 1.5
SETTLING_S: Final = 0.2  # what was recorded while the leases were renewed looks lost until the delivery forgets it


class Keeper:
    """The thread that keeps the claims.

    Args:
        custody: what this worker holds.
        terms: how long things last.
        on_lost: told, from this thread, the tags whose claims others have taken.
        on_dead: told, from this thread, that messages went to the dead letters.
        revoked: the task ids that Celery has heard a revoke for.
        rate: tickets or pages a second that this worker gets done when busy.
        meter: what it gets done of each queue when busy, and how busy it is.
        tallies: where renewals and what was swept are counted.
        heard: told, from this thread, that the broker has answered.
    """

    def __init__(  # noqa: PLR0913 - what it tells and asks, one each
        self,
        custody: Custody,
        terms: Terms,
        *,
        on_lost: Callable[[set[str]], None],
        on_dead: Callable[[], None],
        revoked: Callable[[], Collection[str]],
        rate: Callable[[], float],
        meter: Meter,
        tallies: Tallies,
        heard: Callable[[], None],
    ) -> None:
        self._custody = custody
        self._client = custody.ledger.client
        self._terms = terms
        self._on_lost = on_lost
        self._on_dead = on_dead
        self._revoked = revoked
        self._rate = rate
        self._meter = meter
        self._tallies = tallies
        self._heard = heard
        self._noted_rate = ""
        self._persisted: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def thread(self) -> threading.Thread:
        """The thread."""
        return self._thread

    def start(self) -> None:
        """Take over from a former life of this worker, then start the thread."""
        self._take_over()
        self._thread.start()

    def stop(self) -> None:
        """Stop; the leases end by themselves."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        renew_s = sweep_s = 0.0
        while not self._stop.wait(max(0.0, min(renew_s, sweep_s) - monotonic())):
            now_s = monotonic()
            try:
                if now_s >= renew_s:
                    renew_s = now_s + self._terms.lease_s / RENEWALS_PER_LEASE
                    self._renew()
                if now_s >= sweep_s:
                    sweep_s = now_s + SWEEP_EVERY_S
                    self._sweep()
                    self._heard()
                    self._persist_revokes()  # what follows the sweep may fail on a full server
                    self._note_rate()
            except RedisError as exc:
                log.debug("keeper.retrying", error=type(exc).__name__)
                renew_s = min(renew_s, monotonic() + SWEEP_EVERY_S)

    def _renew(self) -> None:
        held = self._custody.all()
        try:
            tags = self._custody.ledger.renew(held, self._meter.rates.news(), self._meter.loads.now())
        except RedisError:
            self._tallies.add((LEASE_RENEWALS, ("failed",), 1 + len(held)))
            raise
        self._heard()
        lost: list[Held] = []
        if tags:
            self._stop.wait(SETTLING_S)
            still_held = set(self._custody.all())  # what was recorded meanwhile is not lost, nor what has come again
            lost = [one for one in held if one.tag in tags and one in still_held]
        self._tallies.add(
            (LEASE_RENEWALS, ("renewed",), 1 + len(held) - len(lost)), (LEASE_RENEWALS, ("lost",), len(lost))
        )
        if lost:
            log.warning("claims.lost", messages=len(lost))
            self._custody.forget(lost)
            self._on_lost({one.tag for one in lost})

    def _sweep(self) -> None:
        up_s = float(self._client.info("server")["uptime_in_seconds"])
        if up_s < self._terms.lease_s:
            return  # the server has just started: let the living renew first
        swept = self._counted(self._custody.ledger.sweep_each(blame=up_s >= 2 * self._terms.lease_s))
        tidied = self._custody.ledger.tidy()
        if swept.given_back or swept.dead_lettered or tidied:
            log.warning("sweep.found", **swept._asdict(), from_inboxes=tidied)
        if swept.dead_lettered:
            self._on_dead()

    def _counted(self, swept: Mapping[str, Swept]) -> Swept:
        """Count what was found in each queue; return the sums."""
        for queue, found in swept.items():
            if found.given_back or found.dead_lettered:
                self._tallies.add(
                    (REDELIVERIES, (queue,), found.given_back), (DEAD_LETTERS, (queue,), found.dead_lettered)
                )
        return total(swept.values())

    def _persist_revokes(self) -> None:
        """Write down the revokes that Celery broadcast, so that they outlive this worker."""
        revoked = set(self._revoked())
        heard = revoked - self._persisted
        if heard:
            forget_s = self._client.time()[0] + self._terms.result_ttl_s
            self._client.zadd(keys.CANCELLED, dict.fromkeys(heard, forget_s))
        self._persisted = revoked

    def _note_rate(self) -> None:
        """Say how fast this worker is, for `batchmill queues` and whoever scales the workers."""
        rate = f"{self._rate():.3g}"
        if rate != self._noted_rate:
            self._client.hset(keys.RATES, self._custody.ledger.incarnation, rate)
            self._noted_rate = rate

    def _take_over(self) -> None:
        """Sweep at once what a former life of this worker, dead on this host, still holds."""
        ledger = self._custody.ledger
        now_s = float(self._client.time()[0])
        members: Any = self._client.zrange(keys.WORKERS, 0, -1, withscores=True)
        for member, seen_s in members:
            former = member.decode()
            is_silent = now_s - seen_s > SILENT_RENEWALS * self._terms.lease_s / RENEWALS_PER_LEASE
            if has_died(former, ledger.incarnation, is_silent=is_silent):
                swept = self._counted(ledger.sweep_each(former=former))
                tidied = ledger.tidy(former)
                say = log.warning if any(swept) or tidied else log.info  # else it had ended well
                say("sweep.took_over", former=former, **swept._asdict(), from_inboxes=tidied)
