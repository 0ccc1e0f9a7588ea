"""Workers are killed in the midst of a bulk run: at each step from a shard's rows to its part, and at random."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.steps import OF_A_SHARD, Step
from tests.faults.trial import FULL_ONLY

if TYPE_CHECKING:
    from tests.faults.bulk import BulkTrial

KILLS: Final = 20
RUNS: Final = 2  # of 20 shards each: one kill may come before another
RANDOM: Final = Random(1)  # noqa: S311 - victims are no secrets
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.fault("bulk-kill-steps")
def test_a_kill_at_every_step_changes_nothing(bulk: BulkTrial) -> None:
    for step in Step:
        bulk.traps.arm(step, 1)
    bulk.start(2)

    bulk.send(planned=False)

    bulk.assert_same_as_without_faults(120)
    assert {step: bulk.traps.sprung(step) for step in Step} == dict.fromkeys(Step, 1)


@FULL_ONLY
@pytest.mark.fault("bulk-kill-20-shard-steps")
def test_twenty_kills_at_every_step_of_a_shard_change_nothing(bulk: BulkTrial) -> None:
    for step in OF_A_SHARD:
        bulk.traps.arm(step, KILLS)
    bulk.start(4)

    for _ in range(RUNS):
        bulk.send()

    bulk.assert_same_as_without_faults(900)
    assert {step: bulk.traps.sprung(step) for step in OF_A_SHARD} == dict.fromkeys(OF_A_SHARD, KILLS)


@FULL_ONLY
@pytest.mark.fault("bulk-kill-random")
def test_kills_at_random_change_nothing(bulk: BulkTrial) -> None:
    bulk.start(2)

    bulk.send(planned=False)
    bulk.trial.fleet.kill_every(3, RANDOM, until=bulk.done)

    bulk.assert_same_as_without_faults()
    assert bulk.trial.fleet.kills
