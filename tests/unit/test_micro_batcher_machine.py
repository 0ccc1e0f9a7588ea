"""Whatever comes, waits, expires or is cancelled in whatever order: what the batcher promises holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.names import Band
from tests.waiting import Clock, add_items, make_job
from worker.batching import MicroBatcher
from worker.planner import BatchPolicy

if TYPE_CHECKING:
    from worker.batching import Decision
    from worker.jobs import Item, Job
    from worker.planner import Batch

LENGTHS = st.lists(st.integers(1, 80), min_size=1, max_size=24)
KEYS = st.sampled_from([None, None, None, "a", "b"])
KEY_LENGTHS = {"a": 7, "b": 19}
POLICIES = st.builds(
    BatchPolicy,
    max_batch_size=st.integers(1, 8),
    max_batch_tokens=st.integers(20, 120),
    max_queue_delay_s=st.sampled_from([0.0, 0.0, 1.5]),
    planning_window=st.integers(1, 20),
    call_cost_tokens=st.sampled_from([0.0, 16.0, 100.0]),
    ageing_s=st.sampled_from([2.0, 5.0]),
)


class Expected:
    """What one band must hold: its items by job, unserved jobs first come first served, the others in turns."""

    def __init__(self, now_s: float) -> None:
        self.fresh: dict[Job, list[Item]] = {}
        self.resumed: dict[Job, list[Item]] = {}
        self.skipped: Item | None = None
        self.served_s = now_s

    @property
    def items(self) -> list[Item]:
        return [item for jobs in (self.fresh, self.resumed) for items in jobs.values() for item in items]

    @property
    def heads(self) -> list[Item]:
        return [next(iter(jobs.values()))[0] for jobs in (self.fresh, self.resumed) if jobs]

    def oldest_s(self) -> float:
        return min(item.queued_s for item in self.items)

    def waits_s(self, now_s: float) -> float:
        return now_s - max(self.served_s, self.oldest_s())

    def is_ready(self, policy: BatchPolicy, now_s: float) -> bool:
        return bool(self.items) and (
            len(self.items) >= policy.max_batch_size
            or sum(item.length for item in self.items) >= policy.max_batch_tokens
            or self.oldest_s() + policy.max_queue_delay_s <= now_s
        )

    def add(self, job: Job, items: list[Item]) -> None:
        jobs = self.resumed if job.served else self.fresh
        jobs.setdefault(job, []).extend(items)

    def remove_job(self, job: Job) -> list[Item]:
        return self.fresh.pop(job, None) or self.resumed.pop(job, None) or []

    def remove_batch(self, batch: Batch, now_s: float) -> None:
        for job in dict.fromkeys(item.job for item in batch.items):
            left = [item for item in self.remove_job(job) if item not in batch.items]
            if left:
                self.resumed[job] = left
        self.served_s = now_s


class MicroBatcherMachine(RuleBasedStateMachine):
    """Drives a MicroBatcher beside a plain account of what waits in it."""

    @initialize(policy=POLICIES)
    def start(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.clock = Clock()
        self.cancelled: set[Job] = set()
        self.jobs: list[Job] = []
        self.bands = {band: Expected(float("-inf")) for band in Band}
        self.batcher = MicroBatcher(policy, self.clock, self.cancelled.__contains__)

    @rule(band=st.sampled_from(Band), lengths=LENGTHS, data=st.data())
    def a_message_comes(self, band: Band, lengths: list[int], data: st.DataObject) -> None:
        lifetime_s = data.draw(st.sampled_from([None, None, 1.0, 4.0]), "lifetime_s")
        deadline_s = None if lifetime_s is None else self.clock.now_s + lifetime_s
        self.jobs.append(make_job(str(len(self.jobs)), band, deadline_s))
        self._add(self.jobs[-1], lengths, data)

    @rule(band=st.sampled_from(Band), length=st.integers(1, 30))
    def a_single_ticket_comes(self, band: Band, length: int) -> None:
        self.jobs.append(make_job(str(len(self.jobs)), band))
        self._add_items(self.jobs[-1], add_items(self.jobs[-1], [length]))

    @precondition(lambda self: self.jobs)
    @rule(lengths=LENGTHS, data=st.data())
    def more_of_a_message_is_prepared(self, lengths: list[int], data: st.DataObject) -> None:
        self._add(self._draw_job(data), lengths, data)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def a_job_is_cancelled(self, data: st.DataObject) -> None:
        self.cancelled.add(self._draw_job(data))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def a_job_is_taken_back(self, data: st.DataObject) -> None:
        job = self._draw_job(data)
        self.jobs.remove(job)

        assert self.batcher.discard(job) == self.bands[job.band].remove_job(job)

    @rule()
    def a_runner_is_free(self) -> None:
        now_s = self.clock.now_s
        decision = self.batcher.take()
        for job in decision.dropped:
            assert self._is_unwanted(job)
            assert self.bands[job.band].remove_job(job), "dropped twice, or had nothing waiting"
            self.jobs.remove(job)
        if decision.batch is None:
            self._check_wait(decision, now_s)
        else:
            self._check_batch(decision.batch)
            if not decision.dropped:  # what it dropped made its band more urgent
                self._check_urgency(decision.batch.items[0].job.band, now_s)
            self._check_turn(decision.batch, now_s)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if hasattr(self, "batcher"):
            assert self.batcher.backlog() == sum(len(band.items) for band in self.bands.values())

    def teardown(self) -> None:
        if hasattr(self, "batcher"):
            self.clock.advance(self.policy.max_queue_delay_s)
            while self.batcher.backlog() > 0:
                before = self.batcher.backlog()
                self.a_runner_is_free()
                assert self.batcher.backlog() < before

    def _check_wait(self, decision: Decision, now_s: float) -> None:
        waiting = [band for band in self.bands.values() if band.items]
        assert not any(band.is_ready(self.policy, now_s) for band in waiting)
        expected_s = [band.oldest_s() + self.policy.max_queue_delay_s - now_s for band in waiting]
        assert decision.wait_s == min(expected_s, default=None)

    def _check_batch(self, batch: Batch) -> None:
        waiting = self.bands[batch.items[0].job.band].items
        assert all(item in waiting for item in batch.items)
        assert len(set(batch.items)) == len(batch.items)
        assert not any(self._is_unwanted(item.job) for item in batch.items)
        assert batch.length == max(item.length for item in batch.items)
        assert len(batch.rows) <= self.policy.max_batch_size
        assert len(batch.rows) == 1 or batch.padded_tokens <= self.policy.max_batch_tokens
        assert all(len({item.key for item in row}) == 1 for row in batch.rows)
        shared = [row[0].key for row in batch.rows if row[0].key is not None]
        assert len(shared) == len(set(shared))
        assert all(len(row) == 1 for row in batch.rows if row[0].key is None)

    def _check_turn(self, batch: Batch, now_s: float) -> None:
        band = self.bands[batch.items[0].job.band]
        heads = [head for head in band.heads if not self._is_unwanted(head.job)]
        assert any(head in batch.items for head in heads), "led by nobody whose turn it is"
        if band.skipped in heads:
            assert band.skipped in batch.items, "passed over twice"
        band.skipped = next((head for head in heads if head.job not in batch.jobs), None)
        band.remove_batch(batch, now_s)

    def _check_urgency(self, chosen: Band, now_s: float) -> None:
        ageing_s = self.policy.ageing_s
        waits_s = self.bands[chosen].waits_s(now_s)
        for level, band in self.bands.items():
            if level == chosen or not band.is_ready(self.policy, now_s):
                continue
            if level < chosen:
                assert waits_s >= (chosen - level) * ageing_s, f"overtook {level.name} without having aged"
            else:
                assert band.waits_s(now_s) < (level - chosen + 1) * ageing_s + waits_s, f"{level.name} starves"

    def _is_unwanted(self, job: Job) -> bool:
        expired = job.deadline_s is not None and job.deadline_s <= self.clock.now_s
        return expired or job in self.cancelled

    def _draw_job(self, data: st.DataObject) -> Job:
        return self.jobs[data.draw(st.integers(0, len(self.jobs) - 1), "job")]

    def _add(self, job: Job, lengths: list[int], data: st.DataObject) -> None:
        keys = data.draw(st.lists(KEYS, min_size=len(lengths), max_size=len(lengths)), "keys")
        lengths = [KEY_LENGTHS.get(key or "", length) for key, length in zip(keys, lengths, strict=True)]
        self._add_items(job, add_items(job, lengths, keys))

    def _add_items(self, job: Job, items: list[Item]) -> None:
        self.batcher.add(items)
        self.bands[job.band].add(job, items)


MicroBatcherMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMicroBatcher = MicroBatcherMachine.TestCase
