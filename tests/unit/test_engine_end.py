"""How the engine ends: drained, connection lost, broken. No job is lost from sight, none is blamed."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from tests.echo import EchoModel, EchoPipeline, Heard, message, outcomes
from tests.services import wait_until
from worker.engine import Engine
from worker.jobs import Item
from worker.lanes import Lane
from worker.planner import BatchPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.jobs import Job

POLICY = BatchPolicy(max_batch_size=8, max_batch_tokens=200, planning_window=16)


class Held:
    """An engine with one runner; its model is held until released."""

    def __init__(self, heard: Heard | None = None, **limits_s: float) -> None:
        self.heard = heard or Heard()
        self.model = EchoModel()
        self.pipeline = EchoPipeline()
        self.engine = Engine({"echo": Lane(self.model, POLICY)}, self.heard, runners=1, **limits_s)
        self.engine.start()
        self._held = self.model.held()
        self._held.__enter__()

    def submit(self, texts: Sequence[str], **fields: object) -> Job:
        job = message(self.pipeline)
        self.engine.submit(job, (), {"texts": texts, **fields})
        return job

    def run(self, *texts: str) -> Job:
        """Submit a message and wait until it runs."""
        job = self.submit(list(texts))
        wait_until(lambda: self.model.calls)
        return job

    def wait(self, *texts: str) -> Job:
        """Submit a message and wait until it waits for a batch."""
        job = self.submit(list(texts))
        self.heard.wait_for("finished", self.submit(["unreadable"]))  # comes after it and needs no batch
        return job

    def release(self) -> None:
        """Let the model answer."""
        self._held.__exit__(None, None, None)


@pytest.fixture
def held() -> Iterator[Held]:
    engine = Held()
    yield engine
    engine.model.close()
    engine.engine.stop(10.0)


def test_a_stop_finishes_what_runs_and_returns_the_rest(held: Held) -> None:
    runs, waits = held.run("runs"), held.wait("waits")
    returned: list[Job] = []
    stopping = threading.Thread(target=lambda: returned.extend(held.engine.stop(10.0)))
    stopping.start()
    held.release()
    stopping.join(10.0)

    assert returned == [waits]
    assert held.heard.of(runs) == ["started", "finished"]
    assert held.heard.of(waits) == []


def test_a_stop_returns_a_message_whose_first_batch_it_finishes(held: Held) -> None:
    big = held.run(*["x"] * 100)
    stopping = threading.Thread(target=held.engine.stop, args=(10.0,))
    stopping.start()
    wait_until(lambda: held.engine._closing)  # noqa: SLF001 - else the runner may begin one more batch
    held.release()
    stopping.join(10.0)

    assert len(held.model.calls) == 1
    assert held.heard.of(big) == ["started"]


def test_a_batch_that_outlasts_the_stop_is_returned_and_blamed_for_nothing(held: Held) -> None:
    runs = held.run("a", "b", "c", "d")

    assert held.engine.stop(0.0) == [runs]

    wait_until(lambda: not any(thread.name == "runner-0" for thread in threading.enumerate()))
    assert held.heard.of(runs) == ["started"]
    assert outcomes(runs) == [None] * 4
    assert len(held.model.calls) == 1


def test_an_idle_engine_stops_at_once(held: Held) -> None:
    assert held.engine.stop(10.0) == []


def test_what_has_not_started_is_dropped_when_the_connection_is_lost(held: Held) -> None:
    runs, waits = held.run("runs"), held.wait("waits")

    assert held.engine.drop_waiting() == [waits]

    held.release()
    held.heard.wait_for("finished", runs)
    assert held.heard.of(waits) == []
    assert ["waits"] not in held.model.calls


def test_a_message_of_which_a_batch_ran_is_kept_when_the_connection_is_lost(held: Held) -> None:
    big = held.run(*["x"] * 100)

    assert held.engine.drop_waiting() == []

    held.release()
    held.heard.wait_for("finished", big)


def test_a_job_that_is_dropped_while_it_is_opened_is_neither_started_nor_kept() -> None:
    class Dropping(EchoPipeline):
        """The connection is lost at the worst moment."""

        def open(self, job: Job, args: Sequence[object], kwargs: dict[str, object]) -> None:  # type: ignore[override]
            dropped.extend(held.engine.drop_waiting())
            super().open(job, args, kwargs)

    dropped: list[Job] = []
    held = Held()
    held.release()
    held.pipeline = Dropping()
    wrong, big = held.submit("no list"), held.submit(["x"] * 5_000)  # type: ignore[arg-type]
    wait_until(lambda: {wrong, big} <= set(dropped))
    held.pipeline = EchoPipeline()
    held.heard.wait_for("finished", held.submit(["after"]))

    assert held.heard.of(wrong) == held.heard.of(big) == []
    assert big not in held.engine._preparer._opened  # noqa: SLF001 - it would stay there for ever
    held.engine.stop(10.0)


def test_a_call_that_ignores_its_cancellation_breaks_the_engine() -> None:
    held = Held(batch_timeout_s=0.05, stuck_grace_s=0.05)
    held.release()
    held.submit(["stuck"])
    wait_until(lambda: held.heard.broken_by)
    held.model.close()
    held.engine.stop(10.0)

    assert held.heard.broken_by == ["a model call is stuck"]


class Deaf(Heard):
    """Breaks the promise not to raise."""

    def started(self, jobs: Sequence[Job]) -> None:
        raise RuntimeError(len(jobs))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("heard", "fields", "thread"),
    [(Deaf(), {}, "runner-0"), (Heard(), {"lanes": ["nowhere"]}, "preparer")],
    ids=["runner", "preparer"],
)
def test_a_thread_that_dies_breaks_the_engine(heard: Heard, fields: dict[str, object], thread: str) -> None:
    held = Held(heard)
    held.release()
    held.submit(["x"], **fields)
    wait_until(lambda: heard.broken_by)
    held.engine.stop(10.0)

    assert heard.broken_by == [f"thread {thread} died"]


def test_a_job_that_was_let_go_leaves_nothing_to_the_garbage_collector() -> None:
    class Source:
        """Something that can be watched."""

    job = message(EchoPipeline())
    job.items = [Item(job, 0, Source(), "echo")]
    watched = weakref.ref(job.items[0].source)
    gc.disable()
    try:
        job.let_go()
        del job
        assert watched() is None
    finally:
        gc.enable()
