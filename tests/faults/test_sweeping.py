"""Whoever sweeps may die over it: there is no lock that the dead could hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.oracle import texts
from tests.services import wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial


@pytest.mark.fault("sweeper-dies")
def test_a_worker_that_dies_while_it_sweeps_holds_up_nobody(trial: Trial) -> None:
    """kombu#1190: the dead holder of the restore lock blocks every redelivery."""
    trial.fleet.start("a", "b", max_batch_size=4)
    trial.books.send(texts(60, "sleep400"))
    wait_until(lambda: trial.runs_on("a") and trial.runs_on("b"), what="both work")

    trial.fleet.kill("a", for_good=True)
    time.sleep(2)  # of its lease's 3; the next sweeps of `b` find it
    with trial.server.client() as client:
        client.client_pause(3000)  # what is asked meanwhile is answered after
    time.sleep(2)  # `b` has asked for a sweep by now
    trial.fleet.kill("b", for_good=True)
    trial.fleet.start("c")

    trial.account(40).assert_clean()
    assert trial.figures.restart_p99_s is not None
    assert trial.figures.restart_p99_s <= 20
