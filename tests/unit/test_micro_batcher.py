"""The batcher's policies by example; test_micro_batcher_machine.py holds them against everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.names import Band
from tests.waiting import Clock, add_items, make_job
from worker.batching import MicroBatcher
from worker.planner import Batch, BatchPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.jobs import Job

POLICY = BatchPolicy(max_batch_size=4, max_batch_tokens=100, planning_window=16, ageing_s=10.0)


class Waiting:
    """A batcher over a fake clock, and short words for what happens to it."""

    def __init__(self, policy: BatchPolicy = POLICY) -> None:
        self.clock = Clock()
        self.cancelled: set[Job] = set()
        self.batcher = MicroBatcher(policy, self.clock, self.cancelled.__contains__)

    def message(
        self,
        name: str,
        lengths: Sequence[int],
        band: Band = Band.INTERACTIVE,
        keys: Sequence[str] | None = None,
        deadline_s: float | None = None,
    ) -> Job:
        """Let a message with prepared tickets of these lengths wait."""
        job = make_job(name, band, deadline_s)
        self.batcher.add(add_items(job, lengths, keys))
        return job

    def take(self) -> Batch:
        """Return the batch that runs now; there must be one."""
        batch = self.batcher.take().batch
        assert batch is not None
        return batch

    def served(self, batches: int = 1) -> list[str]:
        """Names of the jobs in each of the next batches."""
        return ["+".join(sorted({job.id for job in self.take().jobs})) for _ in range(batches)]


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_nothing_waits_nothing_runs(waiting: Waiting) -> None:
    decision = waiting.batcher.take()

    assert decision.batch is None
    assert decision.wait_s is None


def test_single_tickets_of_alike_length_share_a_batch(waiting: Waiting) -> None:
    for name in "abc":
        waiting.message(name, [10])

    assert waiting.served() == ["a+b+c"]
    assert waiting.batcher.backlog() == 0


def test_a_long_ticket_does_not_pad_the_short_ones(waiting: Waiting) -> None:
    for name, length in [("a", 5), ("b", 90), ("c", 5)]:
        waiting.message(name, [length])

    assert waiting.served(2) == ["a+c", "b"]


def test_single_tickets_of_a_band_run_first_come_first_served() -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=1))
    for name in "cab":
        waiting.message(name, [10])

    assert waiting.served(3) == ["c", "a", "b"]


def test_a_ticket_over_the_token_budget_runs_alone(waiting: Waiting) -> None:
    waiting.message("huge", [500])
    waiting.message("small", [5])

    assert waiting.take().padded_tokens == 500
    assert waiting.served() == ["small"]


def test_identical_inputs_share_one_row_and_all_get_out(waiting: Waiting) -> None:
    for name in "abcdef":
        waiting.message(name, [10], keys=["the same"])

    batch = waiting.take()

    assert len(batch.rows) == 1
    assert [item.job.id for item in batch.items] == list("abcdef")
    assert batch.padded_tokens == batch.real_tokens == 10


@pytest.mark.parametrize("batches", range(1, 8))
def test_one_ticket_is_in_the_very_next_batch_after_the_running_one_of_ten_thousand(
    waiting: Waiting, batches: int
) -> None:
    waiting.message("big", [7, 30, 11, 80, 9] * 2_000)
    for _ in range(batches):
        waiting.take()

    one = waiting.message("one", [13])

    assert one in waiting.take().jobs


def test_a_stream_of_single_tickets_leaves_every_second_batch_to_a_message() -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=1))
    waiting.message("big", [10] * 1_000)
    waiting.take()
    served = []
    for number in range(10):
        waiting.message(f"single {number}", [10])
        waiting.message(f"single {number} bis", [10])
        served += waiting.served()

    assert served.count("big") == 5


def test_two_big_messages_take_turns() -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=2, planning_window=2))
    waiting.message("a", [10] * 100)
    waiting.message("b", [10] * 100)

    served = waiting.served(20)

    assert served.count("a") == served.count("b") == 10
    assert served[2:] == ["a", "b"] * 9


def test_interactive_runs_before_normal_before_bulk(waiting: Waiting) -> None:
    for band in (Band.BULK, Band.INTERACTIVE, Band.NORMAL):
        waiting.message(band.name, [10], band)

    assert waiting.served(3) == ["INTERACTIVE", "NORMAL", "BULK"]


def test_bands_never_share_a_batch(waiting: Waiting) -> None:
    waiting.message("urgent", [10])
    waiting.message("bulk", [10], Band.BULK)

    assert waiting.served(2) == ["urgent", "bulk"]


@pytest.mark.parametrize(("band", "waits_s"), [(Band.NORMAL, 10.0), (Band.BULK, 20.0)])
def test_a_band_that_has_aged_gets_its_batch_under_a_saturating_stream(band: Band, waits_s: float) -> None:
    waiting = Waiting()
    waiting.message("patient", [10], band)
    started_s = waiting.clock.now_s
    served = ""
    while served != "patient":
        for number in range(8):
            waiting.message(f"urgent {number}", [10])
        waiting.clock.advance(1.0)
        (served,) = waiting.served()

    assert waiting.clock.now_s - started_s == waits_s


def test_an_aged_band_steps_back_once_it_had_its_batch(waiting: Waiting) -> None:
    waiting.message("bulk", [10] * 40, Band.BULK)
    waiting.clock.advance(30.0)
    for name in ("urgent", "urgent too"):
        waiting.message(name, [99])

    assert waiting.served(4) == ["bulk", "urgent", "urgent too", "bulk"]


def test_a_batch_waits_for_company_as_long_as_the_policy_says() -> None:
    waiting = Waiting(BatchPolicy(max_queue_delay_s=2.0))
    waiting.message("a", [10])
    waiting.clock.advance(0.5)
    waiting.message("b", [10])

    assert waiting.batcher.take().wait_s == 1.5

    waiting.clock.advance(1.5)
    assert waiting.served() == ["a+b"]


@pytest.mark.parametrize("lengths", [[10] * 4, [60, 40]], ids=["rows", "tokens"])
def test_a_full_batch_waits_for_nobody(lengths: list[int]) -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=4, max_batch_tokens=100, max_queue_delay_s=60.0))
    waiting.message("full", lengths)

    assert waiting.served() == ["full"]


def test_the_longest_waiting_item_sets_the_delay_whoever_has_the_next_turn() -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=3, max_queue_delay_s=2.0))
    waiting.message("old", [10] * 7)
    waiting.take()
    waiting.clock.advance(0.5)
    waiting.message("young", [10] * 4)

    assert waiting.served(2) == ["young", "old"]  # one of each is left, and it is young's turn
    assert waiting.batcher.take().wait_s == 1.5


def test_a_less_urgent_band_runs_while_a_more_urgent_one_waits_for_company() -> None:
    waiting = Waiting(BatchPolicy(max_batch_size=2, max_queue_delay_s=2.0))
    waiting.message("urgent", [10])
    waiting.message("bulk", [10, 10], Band.BULK)

    assert waiting.served() == ["bulk"]
    assert waiting.batcher.take().wait_s == 2.0


def test_an_expired_job_is_dropped_with_all_its_items_as_its_batch_forms(waiting: Waiting) -> None:
    expired = waiting.message("expired", [10] * 9, deadline_s=waiting.clock.now_s + 1)
    waiting.message("other", [10])
    waiting.clock.advance(1.0)

    decision = waiting.batcher.take()

    assert decision.dropped == (expired,)
    assert decision.batch is not None
    assert [job.id for job in decision.batch.jobs] == ["other"]
    assert waiting.batcher.backlog() == 0


def test_a_job_runs_until_its_deadline(waiting: Waiting) -> None:
    waiting.message("in time", [10], deadline_s=waiting.clock.now_s + 1)
    waiting.clock.advance(0.999)

    assert waiting.served() == ["in time"]


def test_a_cancelled_job_leaves_its_row_to_those_who_sent_the_same(waiting: Waiting) -> None:
    cancelled = waiting.message("cancelled", [10], keys=["the same"])
    kept = waiting.message("kept", [10], keys=["the same"])
    waiting.cancelled.add(cancelled)

    decision = waiting.batcher.take()

    assert decision.dropped == (cancelled,)
    assert decision.batch is not None
    assert decision.batch.jobs == [kept]


def test_a_cancelled_ticket_does_not_use_up_the_turn_of_the_next(waiting: Waiting) -> None:
    waiting.message("big", [10] * 1_000)
    waiting.take()
    waiting.cancelled.add(waiting.message("cancelled", [90]))
    one = waiting.message("one", [10])

    assert one in waiting.take().jobs


def test_a_discarded_job_gives_all_its_waiting_items_back(waiting: Waiting) -> None:
    job = waiting.message("message", [10] * 10)
    running = waiting.take()

    taken = waiting.batcher.discard(job)

    assert {*taken, *running.items} == set(job.items)
    assert not {*taken} & {*running.items}
    assert waiting.batcher.take().batch is None


def test_two_batchers_decide_alike() -> None:
    decisions = []
    for waiting in (Waiting(), Waiting()):
        for number in range(12):
            waiting.message(f"message {number}", [5 + number * 3 % 17] * 7)
        decisions.append([[item.job.id for item in waiting.take().items] for _ in range(20)])

    assert decisions[0] == decisions[1]


def planned(waiting: Waiting, name: str, lengths: Sequence[int], began_s: float = 0.0) -> Job:
    """Let batches of one ticket each wait, planned beforehand."""
    job = replace(make_job(name, Band.BULK), enqueued_s=began_s)
    waiting.batcher.add_planned(Batch(((item,),), item.length) for item in add_items(job, lengths))
    return job


def test_what_was_planned_beforehand_runs_as_it_was_planned_and_counts_as_no_backlog(waiting: Waiting) -> None:
    planned(waiting, "shard", [3, 30, 4])

    assert waiting.batcher.backlog() == 0
    assert [waiting.take().length for _ in range(3)] == [3, 30, 4]
    assert waiting.batcher.take().batch is None


def test_interactive_and_normal_tickets_pass_what_was_planned(waiting: Waiting) -> None:
    planned(waiting, "shard", [5] * 4)
    waiting.message("ticket", [5])
    waiting.message("normal", [5], Band.NORMAL)

    assert waiting.served(4) == ["ticket", "normal", "shard", "shard"]


def test_bulk_tickets_and_what_was_planned_take_turns(waiting: Waiting) -> None:
    planned(waiting, "shard", [5] * 3)
    waiting.message("bulk", [60, 60, 60], Band.BULK)

    served = []
    for _ in range(6):
        waiting.clock.advance(1.0)
        served += waiting.served()

    assert served in (["bulk", "shard"] * 3, ["shard", "bulk"] * 3)


def test_of_two_shards_the_one_that_began_first_goes_first(waiting: Waiting) -> None:
    planned(waiting, "second", [5, 5], began_s=2.0)
    planned(waiting, "first", [5, 5], began_s=1.0)

    assert waiting.served(4) == ["first", "first", "second", "second"]


def test_what_was_planned_ages_like_its_band(waiting: Waiting) -> None:
    planned(waiting, "shard", [5])
    waiting.clock.advance(2 * POLICY.ageing_s + 1)
    waiting.message("ticket", [5])

    assert waiting.served(2) == ["shard", "ticket"]


def test_a_cancelled_shard_is_dropped_whole(waiting: Waiting) -> None:
    job = planned(waiting, "shard", [5, 5])
    waiting.cancelled.add(job)

    decision = waiting.batcher.take()

    assert (decision.batch, decision.dropped) == (None, (job,))


def test_rows_of_equal_length_only_share_a_batch_where_the_policy_says_so() -> None:
    policy = replace(POLICY, equal_lengths=True, max_batch_size=3, max_batch_tokens=64)
    waiting = Waiting(policy)
    waiting.message("page", [32, 32, 64, 32, 20, 20, 20, 20, 96])

    batches = [waiting.take() for _ in range(6)]

    assert sorted((batch.length, len(batch.rows)) for batch in batches) == [
        (20, 1),
        (20, 3),
        (32, 1),
        (32, 2),
        (64, 1),
        (96, 1),
    ]
    assert all(batch.padded_tokens == batch.real_tokens for batch in batches)
