"""Inputs that kill their worker: they are given up after three runs, and nobody else is harmed or blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.oracle import texts
from worker import keys

if TYPE_CHECKING:
    from tests.faults.trial import Trial

MAX_RUNS = 3


@pytest.mark.fault("poison")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["segfault", "exit", "unreadable"])
def test_an_input_that_kills_its_worker_runs_three_times_then_is_dead_lettered(trial: Trial, way: str) -> None:
    """celery#9082: an input that kills its worker comes back for ever."""
    trial.fleet.start("a")
    trial.fleet.start("b", runners=2)
    good = texts(297, "sleep20")
    poison = texts(3, way, seed=1)
    mixed = [*good[:40], poison[0], *good[40:150], poison[1], *good[150:250], poison[2], *good[250:]]

    ids = trial.books.send(mixed)

    account = trial.account(120)
    poisoned = {task_id for task_id in ids if way in trial.books.texts[task_id]}
    account.assert_clean(failures=len(poisoned))
    failures = account.failures()
    assert set(failures) == poisoned
    assert all("dead_lettered" in why for why in failures.values())
    assert all(trial.runs_of(task_id) <= MAX_RUNS for task_id in poisoned)
    with trial.server.client() as client:
        assert {key.decode() for key in client.hkeys(keys.dead("classify"))} == poisoned
