"""A message that comes back while it still runs here runs twice, and the older run's end is not the newer one's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.echo import EchoPipeline, message
from worker.jobs import Item, Job
from worker.runs import Runs
from worker.slots import Slot


def request(tag: str) -> Any:  # noqa: ANN401 - as much of Celery's request as is looked at
    return SimpleNamespace(message=SimpleNamespace(delivery_tag=tag))


def job() -> Job:
    made = message(EchoPipeline())
    made.items = [Item(made, 0, None)]
    return made


def slot() -> Slot:
    return Slot(None, "id", None, suspect=False)  # type: ignore[arg-type] # its engine is not asked


def test_a_run_is_known_from_its_beginning_to_its_end() -> None:
    runs, asked, work = Runs(), request("one"), job()
    runs.begin(asked, work)
    assert (runs.work_of(asked), runs.tags()) == (work, {"one"})

    runs.end(asked)
    assert (runs.work_of(asked), runs.tags()) == (None, set())
    assert work.items == []
    runs.end(asked)  # once more is no error


def test_the_end_of_an_older_run_leaves_the_newer_one_alone() -> None:
    runs, older, newer = Runs(), request("one"), request("one")
    first, second = job(), job()
    runs.begin(older, first)
    runs.begin(newer, second)
    assert (runs.work_of(older), runs.work_of(newer)) == (None, second)

    runs.end(older)
    assert runs.work_of(newer) is second
    assert len(second.items) == 1
    runs.end(newer)
    assert second.items == []


def test_a_slot_occupies_a_run_that_has_not_ended_and_no_other() -> None:
    runs, older, newer, taken = Runs(), request("one"), request("one"), slot()
    runs.begin(older)
    runs.begin(newer)
    runs.occupy(older, slot())
    assert runs.work_of(newer) is None
    runs.occupy(newer, taken)
    assert runs.work_of(newer) is taken

    runs.end(newer)
    runs.occupy(newer, taken)
    assert runs.tags() == set()


def test_what_others_have_taken_is_forgotten_and_its_jobs_are_told() -> None:
    runs, work = Runs(), job()
    runs.begin(request("a job"), work)
    runs.begin(request("a slot"), slot())
    runs.begin(request("kept"), job())

    assert runs.lose({"a job", "a slot", "unknown"}, set()) == [work]
    assert runs.tags() == {"kept"}
    assert len(work.items) == 1  # it may be in a batch


def test_a_message_that_has_come_again_is_not_lost_with_its_older_claim() -> None:
    runs, newer = Runs(), request("one")
    runs.begin(newer, work := job())

    assert runs.lose({"one"}, {"one"}) == []
    assert runs.work_of(newer) is work
