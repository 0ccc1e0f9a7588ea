"""A model call never returns and cannot be cancelled: the watchdog gives up on it, and the process ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import texts

if TYPE_CHECKING:
    from tests.faults.trial import Trial

EXIT_BROKEN: Final = 70
MAX_RUNS: Final = 3


@pytest.mark.fault("stuck-runner", deadly=True)
@pytest.mark.timeout(300)
def test_a_runner_that_never_returns_takes_its_process_with_it_and_its_neighbours_complete(trial: Trial) -> None:
    good = texts(30)
    (stuck, *_) = trial.books.send([*texts(1, "stuck", seed=1), *good])
    trial.fleet.start("a", "b", batch_timeout_s=1, stuck_grace_s=1)

    account = trial.account(90)
    account.assert_clean(failures=1)
    assert set(account.failures()) == {stuck}
    assert "dead_lettered" in account.failures()[stuck]
    assert trial.runs_of(stuck) <= MAX_RUNS
    assert trial.fleet.exit_codes == [EXIT_BROKEN] * MAX_RUNS
