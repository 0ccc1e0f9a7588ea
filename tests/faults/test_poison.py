"""Inputs that kill their worker: they are given up after three runs, and nobody else is harmed or blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import texts
from worker import keys

if TYPE_CHECKING:
    from tests.faults.trial import Trial

MAX_RUNS: Final = 3


WAYS: Final = ("segfault", "exit", "unreadable")


@pytest.mark.fault("poison", deadly=True)
@pytest.mark.timeout(600)
def test_an_input_that_kills_its_worker_runs_three_times_then_is_dead_lettered(trial: Trial) -> None:
    """celery#9082: an input that kills its worker comes back for ever."""
    trial.fleet.start("a")
    trial.fleet.start("b", runners=2)
    good = texts(99 * trial.pick(short=3, full=9), "sleep20")
    poison = [texts(1, way, seed=n)[0] for n, way in enumerate(WAYS * trial.pick(short=1, full=3))]
    mixed = [
        text
        for n, bad in enumerate(poison)
        for text in (*good[99 * n : 99 * n + 40], bad, *good[99 * n + 40 : 99 * n + 99])
    ]

    ids = trial.books.send(mixed)

    account = trial.account(240)
    poisoned = {task_id for task_id in ids if trial.books.texts[task_id] in poison}
    account.assert_clean(failures=len(poison))
    failures = account.failures()
    assert set(failures) == poisoned
    assert all("dead_lettered" in why for why in failures.values())
    assert max(map(trial.runs().__getitem__, poisoned)) <= MAX_RUNS
    with trial.server.client() as client:
        assert {key.decode() for key in client.hkeys(keys.dead("classify"))} == poisoned
