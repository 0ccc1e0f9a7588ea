"""Workers are killed at random: nothing is lost, nothing ends twice, and what they held runs again soon."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import texts

if TYPE_CHECKING:
    from tests.faults.trial import Trial

WORKERS: Final = ("a", "b", "c")
RESTARTED_WITHIN_S: Final = 20.0
RANDOM: Final = Random(1)  # noqa: S311 - victims are no secrets


@pytest.mark.fault("kill-burst")
@pytest.mark.timeout(3600)
def test_kills_under_a_burst_lose_and_double_nothing(trial: Trial) -> None:
    """kombu#305, celery#7950: a worker that is killed between pop and registration takes the message with it."""
    trial.fleet.start(*WORKERS, max_batch_size=8, lease_s=12, max_crashes=20)  # several of our kills may hit one job
    count = trial.pick(short=400, full=3000, long=100_000)

    trial.books.send(texts(count, f"sleep{trial.pick(short=300, full=300, long=100)}"))
    trial.fleet.kill_every(trial.pick(short=3, full=5), RANDOM, until=trial.books.ended)

    account = trial.account(60)
    account.assert_clean()
    assert trial.fleet.kills
    assert trial.figures.restart_p99_s is not None
    assert trial.figures.restart_p99_s <= RESTARTED_WITHIN_S


@pytest.mark.fault("kill-trickle")
@pytest.mark.timeout(3600)
def test_kills_under_a_trickle_lose_and_double_nothing(trial: Trial) -> None:
    """kombu#305: an idle worker waits inside a blocking pop, which takes a message nowhere when it is killed."""
    trial.fleet.start(*WORKERS, max_batch_size=8, lease_s=12, max_crashes=20)  # several of our kills may hit one job
    count = trial.pick(short=150, full=3000)

    with trial.trickle(trial.pick(short=10, full=30), "sleep30"):
        trial.fleet.kill_every(trial.pick(short=3, full=5), RANDOM, until=lambda: len(trial.books.texts) >= count)

    trial.account().assert_clean()
    assert trial.fleet.kills
