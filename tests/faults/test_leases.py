"""Leases go by the server's clock and by what a worker still does: never early, never late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import texts
from tests.faults.trial import FULL_ONLY
from tests.services import wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial

HOUR_S: Final = 3600
LEASE_S: Final = 3
SWEPT_WITHIN_S: Final = 3


@pytest.mark.fault("clock-skew")
@pytest.mark.parametrize(
    "offset_s", [HOUR_S, pytest.param(-HOUR_S, marks=FULL_ONLY)], ids=["holder-is-fast", "holder-is-slow"]
)
def test_clocks_that_are_an_hour_off_redeliver_nothing_early_and_nothing_late(trial: Trial, offset_s: int) -> None:
    """celery#3270, celery#5935: a job longer than the visibility timeout runs twice.

    kombu#2558: with a short visibility timeout, redelivery comes only after about 100 s.
    """
    trial.fleet.start("holder", lease_s=LEASE_S, clock_offset_s=offset_s)
    (long_job,) = trial.books.send(texts(1, "sleep7000"))
    wait_until(lambda: trial.runs_of(long_job), what="the long job runs")
    trial.fleet.start("other", lease_s=LEASE_S, clock_offset_s=-offset_s)
    trial.books.wait_ended(20)
    assert trial.runs_of(long_job) == 1

    trial.fleet.kill("other", for_good=True)
    (taken_over,) = trial.books.send(texts(1, "sleep6000", seed=1))  # longer than a worker takes to start
    wait_until(lambda: trial.runs_of(taken_over), what="the other job runs")
    trial.fleet.start("other", lease_s=LEASE_S, clock_offset_s=-offset_s)
    trial.fleet.kill("holder", for_good=True)

    trial.account(30).assert_clean()
    assert trial.runs_of(taken_over) == 2
    assert trial.figures.restart_p99_s is not None
    assert trial.figures.restart_p99_s <= LEASE_S + SWEPT_WITHIN_S
