"""A worker is frozen past its lease and wakes up: what it does then has no effect."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from schemas.names import QUEUE_CLASSIFY
from tests.faults.oracle import texts
from tests.services import wait_until
from worker import keys

if TYPE_CHECKING:
    from tests.faults.trial import Trial

NOTICED = ("claims.lost", "delivery.fenced")


@pytest.mark.fault("frozen")
def test_the_late_commit_of_a_frozen_worker_is_fenced_off(trial: Trial) -> None:
    trial.fleet.start("a", max_batch_size=4)
    trial.books.send(texts(4, "sleep1000"))
    wait_until(lambda: trial.runs_on("a"), what="the frozen worker has begun")
    trial.fleet["a"].send(signal.SIGSTOP)

    trial.fleet.start("b")
    trial.books.wait_ended(30)
    trial.fleet["a"].send(signal.SIGCONT)
    wait_until(lambda: any(word in trial.fleet["a"].lines for word in NOTICED), what="the frozen worker has noticed")
    trial.fleet.kill("b", for_good=True)
    later = trial.books.send(texts(5, seed=1))
    trial.books.wait_ended(20, later)

    trial.account().assert_clean()
    assert trial.runs_on("a") > 1, "the worker that was frozen works again"


def known(client: Any) -> set[str]:  # noqa: ANN401 - redis-py's answers are typed for async too
    """Return the names of the workers that the server knows."""
    return {member.decode().split("@")[0] for member in client.zrange(keys.WORKERS, 0, -1)}


@pytest.mark.fault("frozen-then-killed")
def test_what_reaches_a_frozen_worker_that_had_been_forgotten_before_is_not_stranded(trial: Trial) -> None:
    trial.fleet.start("a", "b")
    with trial.server.client() as client:
        wait_until(lambda: known(client) == {"a", "b"}, what="both are known")
        trial.fleet["a"].send(signal.SIGSTOP)
        wait_until(lambda: known(client) == {"b"}, what="the frozen worker is forgotten")
        trial.fleet["a"].send(signal.SIGCONT)
        wait_until(lambda: known(client) == {"a", "b"}, what="it is known again")
        trial.fleet.kill("b", for_good=True)

        trial.books.send(texts(20, "sleep20"))
        trial.books.wait_ended(20)
        wait_until(lambda: client.info("clients")["blocked_clients"], what="it waits for the next")
        trial.fleet["a"].send(signal.SIGSTOP)
        trial.books.send(texts(1, seed=1))
        wait_until(lambda: client.hlen(keys.unacked(QUEUE_CLASSIFY)), what="the message is held for it")
        trial.fleet.kill("a", for_good=True)
    trial.fleet.start("b")

    trial.account(20).assert_clean()
