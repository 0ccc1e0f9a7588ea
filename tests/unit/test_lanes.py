"""Items spawn items for other lanes; a job ends with the last of them, whatever becomes of each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import ErrorCode
from schemas.names import Band
from tests.echo import EchoModel, EchoPipeline, Heard, message
from tests.services import wait_until
from worker.engine import Engine
from worker.errors import ItemFailed
from worker.lanes import Lane
from worker.planner import BatchPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.jobs import Job

POLICY = BatchPolicy(max_batch_size=4, max_batch_tokens=100, planning_window=16)


class Reading:
    """An engine whose lines spawn words."""

    def __init__(self, **lines: Any) -> None:  # noqa: ANN401 - fields of a lane
        self.heard = Heard()
        self.pipeline = EchoPipeline("lines")
        self.models = {"lines": EchoModel("lines"), "words": EchoModel("words")}
        self.engine = Engine(
            {
                "lines": Lane(self.models["lines"], POLICY, spawns=True, **lines),
                "words": Lane(self.models["words"], POLICY, depth=1),
            },
            self.heard,
            runners=1,
        )
        self.engine.start()

    def submit(self, *lines: str, band: Band = Band.INTERACTIVE) -> Job:
        job = message(self.pipeline)
        job.band = band
        self.engine.submit(job, (), {"texts": list(lines)})
        return job

    def wait_prepared(self, *lines: str) -> None:
        """Wait until these lines, and no others, wait for their batches; a message that is not opened counts as one."""
        wait_until(
            lambda: (
                set(lines) <= {line for portion in self.pipeline.portions for line in portion}
                and self.engine.backlog() == len(lines)
            ),
            5.0,
            "the lines are prepared",
        )

    def finish(self, *lines: str) -> list[object]:
        """Submit lines, wait for the end, and return of each its words' outcomes, or its own error's code."""
        job = self.submit(*lines)
        self.heard.wait_for("finished", job)
        return [said(item.outcome) for item in job.items]

    def calls(self) -> list[list[str]]:
        return [call for model in self.models.values() for call in model.calls]


def said(outcome: Any) -> object:  # noqa: ANN401 - any outcome
    if isinstance(outcome, ItemFailed):
        return outcome.code
    return outcome if isinstance(outcome, str) else [said(child.outcome) for child in outcome]


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    stop(made)


def stop(made: Reading) -> None:
    for model in made.models.values():
        model.close()
    made.engine.stop(1.0)


def test_a_job_ends_with_the_last_item_that_its_items_gave_rise_to(reading: Reading) -> None:
    assert reading.finish("my card", "is broken now") == [["MY", "CARD"], ["IS", "BROKEN", "NOW"]]


def test_an_outcome_that_gives_rise_to_nothing_is_an_end_too(reading: Reading) -> None:
    assert reading.finish("empty", "one") == [[], ["ONE"]]


def test_each_spawned_item_has_its_own_end(reading: Reading) -> None:
    outcomes = reading.finish("good boom nan unreadable also", "fine")

    assert outcomes == [
        ["GOOD", ErrorCode.INFERENCE_FAILED, ErrorCode.MODEL_OUTPUT_NOT_FINITE, ErrorCode.NOT_TEXT, "ALSO"],
        ["FINE"],
    ]


def test_an_item_that_fails_spawns_nothing_and_one_whose_spawning_fails_has_failed(reading: Reading) -> None:
    outcomes = reading.finish("nan", "unspawnable", "good")

    assert outcomes == [ErrorCode.MODEL_OUTPUT_NOT_FINITE, ErrorCode.INFERENCE_FAILED, ["GOOD"]]


def test_words_of_several_messages_share_a_batch(reading: Reading) -> None:
    with reading.models["lines"].held():
        jobs = [reading.submit("empty")]
        wait_until(lambda: reading.models["lines"].calls, 5.0, "a line runs")
        jobs += [reading.submit("one two"), reading.submit("three four")]
        reading.wait_prepared("one two", "three four")
    reading.heard.wait_for("finished", *jobs)

    assert [sorted(call) for call in reading.models["words"].calls] == [["four", "one", "three", "two"]]


def test_a_job_that_waits_in_several_lanes_is_dropped_once(reading: Reading) -> None:
    with reading.models["lines"].held():
        job = reading.submit("a b", "c", "d", "e", "f")  # more than one batch
        wait_until(lambda: reading.models["lines"].calls, 5.0, "the first lines run")
        reading.heard.cancelled.add(job)
    reading.heard.wait_for("dropped", job)
    assert reading.finish("g") == [["G"]]

    assert reading.heard.of(job).count("dropped") == 1


def test_what_has_begun_is_ended_before_more_is_begun(reading: Reading) -> None:
    with reading.models["lines"].held():
        first = reading.submit("a b c d e")
        wait_until(lambda: reading.models["lines"].calls, 5.0, "the first line runs")
        second = reading.submit("f")
        reading.wait_prepared("f")
    reading.heard.wait_for("finished", first, second)

    assert reading.heard.events.index(("finished", first)) < reading.heard.events.index(("started", second))


def test_a_more_urgent_line_goes_before_the_words_of_a_less_urgent_one(reading: Reading) -> None:
    with reading.models["lines"].held():
        bulk = reading.submit("a b c d e", band=Band.BULK)
        wait_until(lambda: reading.models["lines"].calls, 5.0, "the bulk line runs")
        urgent = reading.submit("f")
        reading.wait_prepared("f")
    reading.heard.wait_for("finished", bulk, urgent)

    events = reading.heard.events
    assert events.index(("finished", urgent)) < events.index(("finished", bulk))


def test_a_lane_with_threads_of_its_own_does_not_wait_for_the_runners() -> None:
    reading = Reading(threads=2)
    try:
        with reading.models["words"].held():
            reading.submit("first")
            wait_until(lambda: reading.models["words"].calls, 5.0, "the only runner is busy")
            reading.submit("second")
            wait_until(lambda: len(reading.models["lines"].calls) == 2, 5.0, "the second line runs all the same")
        names = {thread.name for thread in threading.enumerate()}
        assert {"lines-0", "lines-1", "runner-0"} <= names
        assert reading.finish("third") == [["THIRD"]]
    finally:
        stop(reading)


def test_a_job_that_is_dropped_spawns_no_more(reading: Reading) -> None:
    with reading.models["lines"].held():
        job = reading.submit("a b")
        wait_until(lambda: reading.models["lines"].calls, 5.0, "the line runs")
        reading.heard.cancelled.add(job)
    reading.finish("c")
    wait_until(lambda: "dropped" in reading.heard.of(job), 5.0, "it is dropped")

    assert not any("a" in call for call in reading.models["words"].calls)
    assert reading.engine.jobs() == 0
