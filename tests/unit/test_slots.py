"""A message outside the batcher runs its rows on the engine: planned beforehand, marked, and ended with the worker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.echo import EchoModel, EchoPipeline, Heard, message, outcomes
from tests.services import wait_until
from worker.engine import Engine
from worker.errors import Cancelled, Draining
from worker.jobs import Item
from worker.lanes import Lane
from worker.planner import Batch, BatchPolicy
from worker.slots import Slot, occupied, occupying

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from worker.jobs import Job


class Bulk:
    """An engine, and a slot that hands it batches."""

    def __init__(self, *, suspect: bool = False) -> None:
        self.heard = Heard()
        self.model = EchoModel()
        self.pipeline = EchoPipeline()
        self.engine = Engine({"echo": Lane(self.model, BatchPolicy(max_batch_size=8))}, self.heard, runners=1)
        self.engine.start()
        self.slot = Slot(self.engine, "shard-1", "its message", suspect=suspect)

    def submit(self, *batches: Sequence[str]) -> Job:
        """Hand over batches of these texts."""
        job = self.slot.job(self.pipeline)
        texts = [text for batch in batches for text in batch]
        job.items = [Item(job, index, text, "echo", features=text, length=1) for index, text in enumerate(texts)]
        items = iter(job.items)
        self.slot.submit("echo", job, [Batch(tuple((next(items),) for _ in batch), 1) for batch in batches])
        return job


@pytest.fixture
def bulk() -> Iterator[Bulk]:
    made = Bulk()
    yield made
    made.model.close()
    made.engine.stop(1.0)


def waited(job: Job) -> Future[None]:
    assert job.waiter is not None
    return job.waiter


def test_batches_run_as_they_were_planned_and_each_item_has_its_outcome(bulk: Bulk) -> None:
    job = bulk.submit(["a", "b", "c"], ["d"])

    waited(job).result(5.0)

    assert bulk.model.calls == [["a", "b", "c"], ["d"]]
    assert outcomes(job) == ["A", "B", "C", "D"]


def test_a_row_that_fails_is_isolated_and_its_neighbours_stay(bulk: Bulk) -> None:
    job = bulk.submit(["a", "boom", "c"])

    waited(job).result(5.0)

    assert [item.outcome for item in job.items if item.source != "boom"] == ["A", "C"]


def test_the_listener_hears_of_no_message_and_no_backlog(bulk: Bulk) -> None:
    with bulk.model.held():
        job = bulk.submit(["a"], ["b"])
        wait_until(lambda: bulk.model.calls, 5.0, "the first batch runs")
        assert (bulk.engine.jobs(), bulk.engine.backlog()) == (0, 0)
    waited(job).result(5.0)

    assert bulk.heard.of(job) == []


def test_an_interactive_message_waits_for_one_batch_at_most(bulk: Bulk) -> None:
    with bulk.model.held():
        shard = bulk.submit(*(["row"] for _ in range(20)))
        wait_until(lambda: bulk.model.calls, 5.0, "a batch runs")
        ticket = message(bulk.pipeline)
        bulk.engine.submit(ticket, (), {"texts": ["ticket"]})
        wait_until(lambda: bulk.engine.backlog() == 1 and bulk.pipeline.portions, 5.0, "it is prepared")
    waited(shard).result(5.0)

    assert bulk.model.calls.index(["ticket"]) == 1


def test_a_worker_that_stops_tells_whoever_waits_and_takes_no_more(bulk: Bulk) -> None:
    with bulk.model.held():
        job = bulk.submit(["a"], ["b"])
        wait_until(lambda: bulk.model.calls, 5.0, "the first batch runs")
        bulk.engine.stop(0.0)

    with pytest.raises(Draining):
        waited(job).result(5.0)
    with pytest.raises(Draining):
        bulk.submit(["c"])


def test_a_cancelled_message_is_told_so(bulk: Bulk) -> None:
    with bulk.model.held():
        first = bulk.submit(["a"])
        wait_until(lambda: bulk.model.calls, 5.0, "a batch runs")
        job = bulk.submit(["b"])
        bulk.heard.cancelled.add(job)
    waited(first).result(5.0)

    with pytest.raises(Cancelled):
        waited(job).result(5.0)
    assert bulk.model.calls == [["a"]]


def test_a_lost_connection_leaves_what_runs_in_a_slot(bulk: Bulk) -> None:
    with bulk.model.held():
        job = bulk.submit(["a"], ["b"])
        assert bulk.engine.drop_waiting() == []
    waited(job).result(5.0)

    assert outcomes(job) == ["A", "B"]


def test_a_thread_knows_the_slot_that_it_occupies(bulk: Bulk) -> None:
    assert occupied() is None
    with occupying(bulk.slot):
        assert occupied() is bulk.slot
    assert occupied() is None


def test_a_wait_for_the_engine_is_no_work_of_the_slot_and_what_ran_is_charged_to_it(bulk: Bulk) -> None:
    with bulk.model.held():
        job = bulk.submit(["a"], ["b"])
        waiting = threading.Thread(target=bulk.slot.wait, args=[job])
        waiting.start()
        wait_until(lambda: bulk.slot.work_s() > 0.5, 5.0, "some time passes")
        with_wait_s = bulk.slot.work_s()
    waiting.join(5.0)

    assert bulk.slot.work_s() < with_wait_s
    assert bulk.slot.runner_s == job.runner_s > 0.2


def test_what_is_recorded_after_the_thread_has_left_is_no_work_of_the_slot(bulk: Bulk) -> None:
    with occupying(bulk.slot):
        pass
    work_s = bulk.slot.work_s()
    assert bulk.slot.work_s() == work_s
