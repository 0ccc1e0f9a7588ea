"""The same bulk work is done twice: by messages that came twice, two coordinators, or a worker that had been frozen."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from schemas.names import QUEUE_BULK, TASK_BULK_SHARD
from tasks.bulk.planning import plan_key
from tests.faults.steps import Step
from tests.faults.trial import FULL_ONLY
from tests.services import wait_until
from worker import keys

if TYPE_CHECKING:
    from tests.faults.bulk import BulkTrial

pytestmark = pytest.mark.timeout(600)


@pytest.mark.fault("bulk-duplicates")
def test_shards_whose_messages_come_three_times_have_one_part_each(bulk: BulkTrial) -> None:
    output = bulk.lake.new_output()
    plan = bulk.lake.put_plan(bulk.reference.plan, output)
    for shard in range(len(plan.shards)):
        message = {"plan": f"{output}/_batchmill/plan.json", "plan_key": plan_key(plan), "shard": shard}
        bulk.push(TASK_BULK_SHARD, f"{plan.job_id}:{shard}:0", **message)
        bulk.push(TASK_BULK_SHARD, str(uuid4()), **message)
    with bulk.trial.server.client() as client:
        for name in keys.lists(QUEUE_BULK):
            for content in client.lrange(name, 0, -1):
                client.lpush(name, content)
    bulk.start(bulk.trial.pick(short=1, full=2))

    bulk.send(output=output, planned=False)

    bulk.assert_same_as_without_faults()
    assert len(bulk.lake.manifest(output).parts) == bulk.parts(output) == len(plan.shards)


@pytest.mark.fault("bulk-coordinators")
def test_two_coordinators_at_once_make_one_run_or_one_is_refused(bulk: BulkTrial) -> None:
    same = bulk.send(planned=False)
    bulk.classify(same)
    other = bulk.lake.new_output()
    bulk.outputs.append(other)
    ids = [bulk.classify(other), bulk.classify(other, truncation="head")]  # no text is so long that it matters
    bulk.start(bulk.trial.pick(short=1, full=2))

    bulk.assert_same_as_without_faults()
    ends = [bulk.end_of(task_id) for task_id in ids]
    assert sorted(end["status"] for end in ends) == ["FAILURE", "SUCCESS"]
    assert ["output_in_use" in str(end["result"]) for end in ends] == [end["status"] == "FAILURE" for end in ends]


@pytest.mark.fault("bulk-frozen")
@pytest.mark.parametrize(
    "step",
    [
        Step.PART_UNSENT,
        pytest.param(Step.PLAN_UNSENT, marks=FULL_ONLY),
        pytest.param(Step.REJECTS_UNSENT, marks=FULL_ONLY),
        pytest.param(Step.MANIFEST_UNSENT, marks=FULL_ONLY),
        pytest.param(Step.ACK_UNSENT, marks=FULL_ONLY),
    ],
)
def test_what_a_worker_does_that_was_frozen_past_its_lease_changes_nothing(bulk: BulkTrial, step: Step) -> None:
    bulk.traps.arm(step, 1, signal.SIGSTOP)
    bulk.start(2)

    bulk.send(planned=step is not Step.PLAN_UNSENT)
    wait_until(lambda: bulk.traps.sprung(step), 60, "a worker is frozen")
    wait_until(bulk.done, 60, "the other worker ends the run")
    for name in bulk.trial.fleet.names:
        bulk.trial.fleet[name].send(signal.SIGCONT)
    wait_until(lambda: "claims.lost" in bulk.trial.fleet.lines or "delivery.fenced" in bulk.trial.fleet.lines)

    bulk.assert_same_as_without_faults()
