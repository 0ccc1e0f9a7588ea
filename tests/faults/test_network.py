"""The way between worker and server is cut, half-open or slow: the worker notices, goes on, and nothing is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import texts
from tests.faults.proxy import Proxy
from tests.faults.trial import FULL_ONLY
from tests.services import wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial

RESUMED_WITHIN_S: Final = 25.0
pytestmark = pytest.mark.timeout(300)


def expect_resumed(trial: Trial) -> None:
    """Send jobs now; the worker must have ended them in time."""
    start_s = time.monotonic()
    jobs = trial.books.send(texts(5, seed=int(start_s)))
    trial.books.wait_ended(RESUMED_WITHIN_S, jobs)
    assert trial.books.ended(jobs), f"not resumed within {RESUMED_WITHIN_S} s"


@pytest.mark.fault("connection-cut")
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_worker_whose_connections_are_cut_goes_on(trial: Trial, busy: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with Proxy(trial.server.port) as proxy:
        trial.fleet.start("a", url=proxy.url, max_batch_size=4)
        if busy:
            trial.books.send(texts(40, "sleep200"))
            wait_until(lambda: trial.runs_on("a"), what="the worker works")
        for outage_s in (0.0, 2.0):
            proxy.refusing = True
            proxy.cut()
            time.sleep(outage_s)
            proxy.refusing = False
            expect_resumed(trial)
        trial.account().assert_clean()
        trial.fleet.stop()


@pytest.mark.fault("connection-half-open")
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_worker_notices_that_its_connections_are_half_open(trial: Trial, busy: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """kombu#2590, celery#10502: a silently dropped TCP connection is never noticed."""
    with Proxy(trial.server.port) as proxy:
        trial.fleet.start("a", url=proxy.url, max_batch_size=4)
        if busy:
            trial.books.send(texts(40, "sleep200"))
            wait_until(lambda: trial.runs_on("a"), what="the worker works")
        proxy.freeze()
        expect_resumed(trial)
        trial.account().assert_clean()
        trial.fleet.stop()


@pytest.mark.fault("connection-half-open-lease")
@FULL_ONLY
def test_a_half_open_connection_is_replaced_before_the_lease_ends(trial: Trial) -> None:
    with Proxy(trial.server.port) as proxy:
        trial.fleet.start("a", url=proxy.url, lease_s=12)
        (long_job,) = trial.books.send(texts(1, "sleep18000"))
        trial.books.send(texts(20, "sleep10", seed=1))
        wait_until(lambda: trial.runs_of(long_job), what="the long job runs")
        trial.fleet.start("b", lease_s=12)
        proxy.freeze()
        trial.account().assert_clean()
        assert trial.runs_of(long_job) == 1
        trial.fleet.stop()


@pytest.mark.fault("connection-slow")
def test_a_slow_connection_costs_time_and_nothing_else(trial: Trial) -> None:
    with Proxy(trial.server.port) as proxy:
        trial.fleet.start("a", "b", url=proxy.url)
        proxy.delay_s = 0.2
        trial.books.send(texts(trial.pick(short=100, full=500), "sleep10"), per_s=25)
        trial.account().assert_clean()
        proxy.delay_s = 0.0
        trial.fleet.stop()
