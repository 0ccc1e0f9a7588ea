"""The server is killed with `kill -9`: what it had acknowledged is done, and the workers go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.services import wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial

RESUMED_WITHIN_S: Final = 25.0


@pytest.mark.fault("server-kill")
@pytest.mark.timeout(600)
def test_a_killed_server_has_kept_every_acknowledged_job(trial: Trial) -> None:
    """celery#8030: after a reconnect the worker is alive but does not consume."""
    trial.fleet.start("a", "b", max_batch_size=8)
    with trial.trickle(30, "sleep50"):
        for outage_s in (1, *[1, 1, 40, 1][: trial.pick(short=1, full=4)]):
            time.sleep(3)
            trial.server.kill()
            time.sleep(outage_s)
            trial.server.start()
            up_s = time.monotonic()
            wait_until(
                lambda up_s=up_s: any(run.at_s > up_s for run in trial.journal.read()),  # type: ignore[misc]
                RESUMED_WITHIN_S,
                "the workers have resumed",
            )

    trial.account().assert_clean()
