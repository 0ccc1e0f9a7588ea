"""What an engine tells of its work: for which queue and band its runners are busy, and how many units get done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.names import Band
from tests.echo import EchoModel, EchoPipeline, Heard, message
from tests.services import wait_until
from worker.engine import Engine
from worker.jobs import Charge, Item
from worker.lanes import Lane
from worker.metering import Meter
from worker.planner import Batch, BatchPolicy
from worker.slots import Slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.jobs import Job
    from worker.loads import Load

TICKETS = Charge("classify", Band.INTERACTIVE)
NIGHTLY = Charge("classify", Band.BULK)
SCANS = Charge("ocr", Band.NORMAL)
SHARDS = Charge("bulk", Band.BULK)


class Told(Meter):
    """Writes down what the rates are told, by queue."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.units: dict[str, int] = {}
        self.runner_s: dict[str, float] = {}
        self.rates.opened = self._opened  # type: ignore[method-assign] # to see each call
        self.rates.done = self._done  # type: ignore[method-assign] # to see each call

    def _opened(self, charge: Charge, messages: float, units: int) -> None:
        self.messages[charge.queue] = self.messages.get(charge.queue, 0) + messages
        self.sizes[charge.queue] = self.sizes.get(charge.queue, 0) + units

    def _done(self, queue: str, units: int, seconds: Mapping[str, float]) -> None:
        self.units[queue] = self.units.get(queue, 0) + units
        self.runner_s[queue] = self.runner_s.get(queue, 0) + seconds.get("runners", 0)


class Measured:
    """An engine of two runners over tickets, and over scans that consist of words as documents do of pages."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.meter = Told()
        self.pipeline = EchoPipeline()
        self.models = {name: EchoModel(name) for name in ("echo", "scans", "words")}
        policy = BatchPolicy(max_batch_size=4, max_batch_tokens=1000)
        lanes = {
            "echo": Lane(self.models["echo"], policy),
            "scans": Lane(self.models["scans"], policy, spawns=True, is_unit=False, threads=1),
            "words": Lane(self.models["words"], policy, depth=1),
        }
        self.engine = Engine(lanes, self.heard, runners=2, meter=self.meter)
        self.engine.start()

    def submit(self, charge: Charge, *texts: str, lane: str = "echo") -> Job:
        job = message(self.pipeline)
        job.charge, job.band = charge, Band(charge.band)
        self.engine.submit(job, [], {"texts": list(texts), "lanes": [lane] * len(texts)})
        return job

    def run(self, charge: Charge, *texts: str, lane: str = "echo") -> None:
        job = self.submit(charge, *texts, lane=lane)
        wait_until(lambda: ("finished", job) in self.heard.events, what="it has ended")

    def loads(self) -> dict[str, Load]:
        return self.meter.loads.now()


@pytest.fixture
def measured() -> Iterator[Measured]:
    made = Measured()
    yield made
    for model in made.models.values():
        model.close()
    made.engine.stop(1.0)


def test_a_message_is_as_many_units_as_it_has_tickets_failed_ones_included(measured: Measured) -> None:
    measured.run(TICKETS, "a", "b", "unreadable", "nan", "boom")
    measured.run(TICKETS, "c")
    meter = measured.meter
    assert (meter.messages, meter.sizes, meter.units) == ({"classify": 2}, {"classify": 6}, {"classify": 6})
    assert meter.runner_s["classify"] > 0


def test_a_message_that_is_wrong_as_a_whole_is_a_message_without_units(measured: Measured) -> None:
    measured.run(TICKETS)
    measured.run(TICKETS, "unopenable")
    assert (measured.meter.messages, measured.meter.sizes) == ({"classify": 2}, {"classify": 0})


def test_a_scan_is_as_many_units_as_it_turns_out_to_have_pages(measured: Measured) -> None:
    measured.run(SCANS, "one two three", "unreadable", "four unreadable", "empty", lane="scans")
    meter = measured.meter
    assert meter.messages["ocr"] == pytest.approx(3 / 4)  # what could not even be asked for is no part that was opened
    assert (meter.sizes, meter.units) == ({"ocr": 4}, {"ocr": 4})


def test_a_scan_in_progress_shows_before_it_ends(measured: Measured) -> None:
    job = measured.submit(SCANS, " ".join(["page"] * 8 + ["endless"] + ["page"] * 8), lane="scans")
    wait_until(lambda: measured.meter.units.get("ocr", 0) >= 8, what="its first pages")
    wait_until(lambda: measured.loads().get("ocr", (0, 0, 0))[Band.NORMAL] > 0, what="a load")
    assert ("finished", job) not in measured.heard.events
    assert measured.meter.sizes == {"ocr": 17}


def test_a_batch_is_shared_by_those_whose_rows_it_has(measured: Measured) -> None:
    with measured.models["echo"].held():
        blocking = [measured.submit(TICKETS, "x") for _ in range(2)]  # both runners
        wait_until(lambda: all(("started", job) in measured.heard.events for job in blocking))
        mixed = [measured.submit(TICKETS, "a", "b", "c"), measured.submit(Charge("other", Band.INTERACTIVE), "d")]
    for job in (*blocking, *mixed):
        wait_until(lambda job=job: ("finished", job) in measured.heard.events)  # type: ignore[misc] # bound per round
    assert measured.meter.units == {"classify": 5, "other": 1}
    assert set(measured.loads()) == {"classify", "other"}


def test_a_runner_is_busy_for_the_band_of_its_message(measured: Measured) -> None:
    measured.submit(NIGHTLY, "endless")
    wait_until(lambda: measured.loads().get("classify", (0, 0, 0))[Band.BULK] > 0, what="a load")
    assert measured.loads()["classify"][:2] == (0, 0)


def test_a_slot_is_busy_while_it_is_occupied_and_its_parts_are_no_units(measured: Measured) -> None:
    slot = Slot(measured.engine, "shard", None, SHARDS, suspect=False)
    with measured.meter.occupied(slot, 2):
        job: Any = slot.job(measured.pipeline)
        job.items = [Item(job, 0, "row", "echo", features="row", length=1)]
        slot.submit("echo", job, [Batch(((job.items[0],),), 1)])
        slot.wait(job)
        assert measured.loads()["bulk"][Band.BULK] > 0
    assert measured.meter.units == {}
    measured.meter.vacated(slot, 2, messages=1)
    assert (measured.meter.messages, measured.meter.units) == ({"bulk": 1}, {"bulk": 1})


@pytest.mark.parametrize("turn", [1, -1], ids=["message-first", "part-first"])
def test_a_message_that_shares_a_batch_with_a_part_is_told_and_the_part_is_not(measured: Measured, turn: int) -> None:
    part = Slot(measured.engine, "shard", None, SHARDS, suspect=False).job(measured.pipeline)
    whole = message(measured.pipeline)
    whole.charge = NIGHTLY
    rows = [(Item(job, 0, "row", "words", features="row", length=1),) for job in (whole, part)]
    with measured.meter.running(measured.engine.lanes["words"], Batch(tuple(rows[::turn]), 1), 2):
        pass
    assert measured.meter.units == {"classify": 1}
    assert measured.meter.runner_s.keys() == {"classify"}
