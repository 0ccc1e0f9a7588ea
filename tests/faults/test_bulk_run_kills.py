"""Workers are killed at the steps that a bulk run comes to once: its plan, its shards' messages, its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.lake import Lake
from tests.faults.steps import OF_A_RUN
from tests.faults.trial import FULL_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.bulk import BulkTrial, Reference
    from tests.s3_servers import S3Server

KILLS: Final = 20
RUNS: Final = 30  # one kill may come before another
pytestmark = [FULL_ONLY, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def lake(seaweed: S3Server, new_reference: Callable[[Lake], Reference]) -> tuple[Lake, Reference]:
    """Small, for there are many runs; 20 of them have 20,000 rows."""
    filled = Lake(seaweed, rows=1_000, shard_rows=500).fill()
    return filled, new_reference(filled)


@pytest.mark.fault("bulk-kill-20-run-steps")
def test_twenty_kills_at_every_step_of_a_run_change_nothing(bulk: BulkTrial) -> None:
    for step in OF_A_RUN:
        bulk.traps.arm(step, KILLS)
    bulk.start(4)

    for _ in range(RUNS):
        bulk.send(planned=False)

    bulk.assert_same_as_without_faults(900)
    assert {step: bulk.traps.sprung(step) for step in OF_A_RUN} == dict.fromkeys(OF_A_RUN, KILLS)
