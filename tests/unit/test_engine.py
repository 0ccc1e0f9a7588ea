"""The engine gives every item of every job one outcome, whatever the model does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode, MessageError
from tests.echo import EchoModel, EchoPipeline, Heard, message, outcomes
from tests.services import wait_until
from worker.engine import Engine
from worker.lanes import Lane
from worker.planner import BatchPolicy
from worker.preparing import PORTION_PER_JOB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from worker.jobs import Item, Job

POLICY = BatchPolicy(max_batch_size=8, max_batch_tokens=200, planning_window=16)


class Running:
    """An engine over echo models, and short words for what is done to it."""

    def __init__(self, *lanes: str, runners: int = 1, policy: BatchPolicy = POLICY, **limits_s: float) -> None:
        self.heard = Heard()
        self.models = {name: EchoModel(name) for name in lanes or ("echo",)}
        self.pipeline = EchoPipeline()
        self.engine = Engine(
            {name: Lane(model, policy) for name, model in self.models.items()},
            self.heard,
            runners=runners,
            **limits_s,
        )
        self.engine.start()

    @property
    def model(self) -> EchoModel:
        return next(iter(self.models.values()))

    def submit(self, texts: object, pipeline: EchoPipeline | None = None, **fields: object) -> Job:
        job = message(pipeline or self.pipeline)
        self.engine.submit(job, (), {"texts": texts, **fields})
        return job

    def finish(self, texts: Sequence[str]) -> list[object]:
        """Submit a message, wait for its end and return its outcomes."""
        job = self.submit(texts)
        self.heard.wait_for("finished", job)
        return outcomes(job)

    def wait_prepared(self) -> None:
        """Block until all that came before waits for its batch: this comes after it and needs no batch."""
        self.finish(["unreadable"])

    def occupy(self) -> Job:
        """Submit a message and wait until it holds the only runner; the model must be held."""
        before = len(self.model.calls)
        job = self.submit(["occupying"])
        wait_until(lambda: len(self.model.calls) > before)
        return job

    def close(self) -> None:
        for model in self.models.values():
            model.close()
        self.engine.stop(10.0)


@pytest.fixture
def running() -> Iterator[Running]:
    engine = Running()
    yield engine
    engine.close()


@pytest.fixture
def impatient() -> Iterator[Running]:
    """An engine that gives a call of the model a tenth of a second."""
    engine = Running(batch_timeout_s=0.1, stuck_grace_s=0.1)
    yield engine
    engine.close()


def test_an_item_that_has_run_before_the_preparer_goes_on_is_settled_once() -> None:
    heard, job = Heard(), message(EchoPipeline())
    engine = Engine({"echo": Lane(EchoModel(), BatchPolicy())}, heard, runners=1)

    def run_at_once(items: Iterable[Item]) -> None:
        for item in items:
            item.outcome = "as a runner does once it has the lock"

    engine._waiting.add = run_at_once  # type: ignore[method-assign] # noqa: SLF001 - a runner that is quicker
    engine.submit(job, (), {"texts": ["a", "b", "unreadable"]})
    engine._preparer.step()  # noqa: SLF001 - as the engine's thread would

    assert job.pending == 2


def test_each_item_gets_its_own_outcome_in_its_place(running: Running) -> None:
    texts = [f"{'long ' * (number % 7)}{number}" for number in range(100)]

    assert running.finish(texts) == [text.upper() for text in texts]


def test_a_job_starts_once_and_finishes_once(running: Running) -> None:
    job = running.submit(["x"] * 100)
    running.heard.wait_for("finished", job)

    assert running.heard.of(job) == ["started", "finished"]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("boom", ErrorCode.INFERENCE_FAILED),
        ("huge", ErrorCode.OUT_OF_MEMORY),
        ("panic", ErrorCode.INFERENCE_FAILED),
        ("missing", ErrorCode.INFERENCE_FAILED),
        ("nan", ErrorCode.MODEL_OUTPUT_NOT_FINITE),
        ("unreadable", ErrorCode.NOT_TEXT),
        ("untokenisable", ErrorCode.INFERENCE_FAILED),
    ],
)
def test_a_bad_item_fails_alone_and_the_engine_lives(running: Running, bad: str, code: ErrorCode) -> None:
    assert running.finish(["a", "b", bad, "c", bad]) == ["A", "B", code, "C", code]
    assert running.finish(["d"]) == ["D"]


def test_a_bad_item_fails_none_of_another_message(running: Running) -> None:
    with running.model.held():
        running.occupy()
        bad, good = running.submit(["boom"]), running.submit(["fine"])
        running.wait_prepared()
    running.heard.wait_for("finished", bad, good)
    assert outcomes(bad) == [ErrorCode.INFERENCE_FAILED]
    assert outcomes(good) == ["FINE"]


def test_a_call_that_never_answers_times_out_and_its_neighbours_succeed(impatient: Running) -> None:
    with impatient.model.held():
        impatient.occupy()
        job = impatient.submit(["aaaaaaa", "endless", "bbbbbbb"])  # of one length, so of one batch
        impatient.wait_prepared()
    impatient.heard.wait_for("finished", job)

    assert ["aaaaaaa", "endless", "bbbbbbb"] in impatient.model.calls
    assert outcomes(job) == ["AAAAAAA", ErrorCode.INFERENCE_TIMEOUT, "BBBBBBB"]
    assert not impatient.heard.broken_by


@pytest.mark.parametrize("texts", ["no list", ["unopenable"]], ids=["wrong", "panic"])
def test_a_message_that_is_wrong_as_a_whole_finishes_with_its_error(running: Running, texts: object) -> None:
    job = running.submit(texts)
    running.heard.wait_for("finished", job)

    assert isinstance(job.error, MessageError)
    assert running.heard.of(job) == ["started", "finished"]


def test_a_refused_message_finishes_with_its_error(running: Running) -> None:
    job, error = message(running.pipeline), MessageError(ErrorCode.PRIORITY_OUT_OF_RANGE, "10")

    running.engine.refuse(job, error)

    assert running.heard.of(job) == ["started", "finished"]
    assert job.error is error


def test_an_empty_message_finishes(running: Running) -> None:
    assert running.finish([]) == []


def test_identical_inputs_run_once_and_all_are_answered(running: Running) -> None:
    with running.model.held():
        running.occupy()
        shared = EchoPipeline(shared=True)
        jobs = [running.submit(["the same"] * 3, shared) for _ in range(4)]
        running.wait_prepared()
    running.heard.wait_for("finished", *jobs)

    assert running.model.calls[1:] == [["the same"]]
    assert [outcomes(job) for job in jobs] == [["THE SAME"] * 3] * 4


def test_a_cancelled_job_is_dropped_and_never_finishes(running: Running) -> None:
    with running.model.held():
        running.occupy()
        cancelled = running.submit(["x"] * 40)
        running.heard.cancelled.add(cancelled)
    running.heard.wait_for("dropped", cancelled)

    assert running.finish(["after"]) == ["AFTER"]
    assert running.heard.of(cancelled) == ["dropped"]


def test_a_job_cancelled_in_the_middle_is_dropped_once_and_never_finishes(running: Running) -> None:
    with running.model.held():
        job = running.submit(["x"] * 200)
        running.heard.wait_for("started", job)
        running.heard.cancelled.add(job)
    running.heard.wait_for("dropped", job)

    assert running.finish(["after"]) == ["AFTER"]
    assert running.heard.of(job) == ["started", "dropped"]


def test_an_expired_job_is_dropped_and_its_neighbour_finishes(running: Running) -> None:
    with running.model.held():
        running.occupy()
        expired = message(running.pipeline)
        expired.deadline_s = expired.enqueued_s
        running.engine.submit(expired, (), {"texts": ["x"]})
        kept = running.submit(["x"])
    running.heard.wait_for("finished", kept)
    running.heard.wait_for("dropped", expired)

    assert running.heard.of(expired) == ["dropped"]


def test_a_big_message_is_prepared_no_further_ahead_than_twice_the_window(running: Running) -> None:
    job = running.submit(["x"] * 5_000)
    running.heard.wait_for("finished", job)

    assert running.pipeline.ahead_max < 2 * POLICY.planning_window + PORTION_PER_JOB


def test_two_lanes_take_turns_on_one_runner() -> None:
    running = Running("a", "b")
    with running.models["a"].held():
        running.submit(["first"], lanes=["a"])
        wait_until(lambda: running.models["a"].calls)
        jobs = [running.submit(["x"] * 80, EchoPipeline(lane)) for lane in ("a", "b")]
        running.wait_prepared()
        turns: list[str] = []
        for model in running.models.values():
            model.calls = Turns(model.name, turns)
    running.heard.wait_for("finished", *jobs)
    running.close()

    assert turns[:16].count("a") == turns[:16].count("b") == 8


class Turns(list):
    """Calls of one model, noted in a list of all."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self._name = name
        self._turns = turns

    def append(self, call: list[str]) -> None:
        self._turns.append(self._name)
        super().append(call)


def test_the_items_of_one_job_may_run_on_two_lanes() -> None:
    running = Running("a", "b")
    job = running.submit(["x"] * 50, lanes=["a", "b"] * 25)
    running.heard.wait_for("finished", job)
    running.close()

    assert outcomes(job) == ["X"] * 50
    assert not running.heard.broken_by


def test_counters_add_up() -> None:
    running = Running(runners=3)
    jobs = [running.submit([f"{'y' * (number * size % 23)}!" for number in range(size)]) for size in range(1, 40)]
    running.heard.wait_for("finished", *jobs)
    running.close()

    stats = running.engine.stats
    texts = [str(item.source) for job in jobs for item in job.items]
    assert stats.batches == len(running.model.calls)
    assert stats.rows == stats.items == len(texts)
    assert stats.real_tokens == sum(map(len, texts)) == sum(job.real_tokens for job in jobs)
    assert stats.padded_tokens == sum(job.padded_tokens for job in jobs)
    assert stats.padded_tokens == sum(len(call) * max(map(len, call)) for call in running.model.calls)
    assert max(job.batch_size_max for job in jobs) == max(map(len, running.model.calls))
    assert all(1 <= job.batches <= stats.batches for job in jobs)


def test_the_queue_wait_ends_when_the_first_batch_begins(running: Running) -> None:
    with running.model.held():
        running.occupy()
        job = message(running.pipeline)
        job.enqueued_s -= 100.0
        running.engine.submit(job, (), {"texts": ["x"]})
    running.heard.wait_for("finished", job)

    assert 100.0 <= job.queue_wait_s < 110.0


def test_submitting_from_many_threads_loses_nothing() -> None:
    running = Running(runners=2)
    jobs: list[Job] = []
    threads = [
        threading.Thread(target=lambda: jobs.extend(running.submit(["x", "y"]) for _ in range(100))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running.heard.wait_for("finished", *jobs)
    running.close()

    assert len(jobs) == 400
