"""How much a worker takes: so many seconds of its own work, within bounds, less what waits and what it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
import redis
from kombu.utils.json import dumps

from schemas.names import Band
from tests.echo import EchoModel, EchoPipeline, Heard, message
from worker.credit import NONE, PORTIONS, Credit, Room, Slots
from worker.custody import Custody
from worker.engine import Engine
from worker.lanes import Lane
from worker.ledger import Drained, Held, Ledger, Terms
from worker.planner import BatchPolicy
from worker.quota import Quota
from worker.stats import Pace
from worker.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNERS: Final = 2


@pytest.fixture
def engine() -> Engine:
    """An engine that has not started: whatever comes waits. Two seconds of its work are the least that it may hold."""
    engine = Engine({"echo": Lane(EchoModel(), BatchPolicy())}, Heard(), runners=RUNNERS)
    engine.stats.pace = Pace(units=8.0, busy_s=1.0)
    return engine


@pytest.fixture
def custody() -> Iterator[Custody]:
    """Custody whose ledger has no server: nothing here asks it anything."""
    with redis.Redis(port=1) as client:
        yield Custody(Ledger(client, "worker:boot", ["classify"], Terms()))


@pytest.fixture
def credit(custody: Custody, engine: Engine) -> Credit:
    given = Credit(custody, credit_s=0.5, min_items=32, max_items=256, max_bytes=1000)
    given.engine = engine
    return given


HELD: Final = Held("classify", "tag", "id", "worker:boot:1")
IN_SLOT: Final = Held("bulk", "a", "id-a", "worker:boot:1")


def hold(custody: Custody, message_bytes: int) -> None:
    custody.take([Drained(HELD, 0, b"x" * message_bytes)])


@pytest.mark.parametrize(
    ("per_s", "room"),
    [(0.0, 8), (8.0, 32), (7.5, 30), (1.0, 8), (100.0, 100), (170.5, 170), (256.0, 256), (10_000.0, 256)],
    ids=[
        *("not known yet", "the least", "two seconds of what is slow", "a few of what is slower"),
        *("half a second of two runners", "whole items", "at the cap", "fast"),
    ],
)
def test_it_is_half_a_second_of_all_runners_work_within_bounds(
    credit: Credit, engine: Engine, per_s: float, room: int
) -> None:
    engine.stats.pace = Pace(units=per_s, busy_s=1.0)

    assert credit().messages == room


def test_what_waits_takes_room(credit: Credit, engine: Engine) -> None:
    for number in range(40):
        room = 32 - number
        assert credit() == (Quota(room) if room >= 32 / PORTIONS else NONE)
        engine.submit(message(EchoPipeline()), (), {"texts": ["one"]})


def test_what_has_arrived_takes_room_too(credit: Credit) -> None:
    assert credit(arrived=20) == Quota(12)
    assert credit(arrived=30) == NONE


def test_messages_that_were_fetched_for_slots_take_no_room(credit: Credit, engine: Engine) -> None:
    for _ in range(40):
        engine.submit(replace(message(EchoPipeline()), is_on_credit=False), (), {"texts": ["one"]})
    assert credit() == Quota(32)

    engine._preparer.step()  # noqa: SLF001 - it opens and prepares the messages, as the engine's thread would
    assert credit() == Quota(32)


def test_nothing_is_taken_before_there_is_an_engine(custody: Custody) -> None:
    assert Credit(custody, credit_s=1.0, min_items=32, max_items=256, max_bytes=1000)() == NONE


@pytest.mark.parametrize(("message_bytes", "room"), [(999, 32), (1000, 0), (5000, 0)])
def test_nothing_is_taken_beyond_the_bytes_that_it_may_hold(
    credit: Credit, custody: Custody, message_bytes: int, room: int
) -> None:
    hold(custody, message_bytes)
    assert credit().messages == room

    custody.forget([HELD])
    assert credit() == Quota(32)


@pytest.fixture
def room(custody: Custody, credit: Credit) -> Room:
    return Room(credit, {"bulk": Slots(custody, "bulk", 2)}, Vitals(["classify", "bulk"], 12.0))


def test_a_change_that_no_fetcher_waits_for_is_no_error(room: Room) -> None:
    room.changed()


def test_inspect_can_show_it(room: Room) -> None:
    assert dumps({"room": room}) == '{"room": {"credit": 32, "bulk": 0}}'


def test_a_queue_with_slots_is_fetched_by_its_own_limit_and_the_others_share_one(room: Room) -> None:
    limits = room.by_limit(["mail", "bulk", "chat"])

    assert limits == {room.slots["bulk"]: ("bulk",), room.credit: ("mail", "chat")}
    assert room.by_limit(["bulk"]) == {room.slots["bulk"]: ("bulk",)}


def test_a_message_occupies_its_slot_from_the_drain_to_its_record(room: Room, custody: Custody, engine: Engine) -> None:
    slots = room.slots["bulk"]
    assert slots() == Quota(0)  # before there is an engine

    room.attach(engine)
    assert slots() == Quota(2)
    custody.take([Drained(IN_SLOT, 0, b"")])
    hold(custody, 1)
    assert slots() == Quota(1)
    custody.forget([IN_SLOT])
    assert slots() == Quota(2)


def test_a_message_of_ten_thousand_leaves_room_for_a_few_others(credit: Credit, engine: Engine) -> None:
    engine.submit(message(EchoPipeline()), (), {"texts": [str(number) for number in range(10_000)]})
    engine._preparer.step()  # noqa: SLF001 - it opens the message, as the engine's thread would

    for number in range(7):
        assert credit() == Quota(7 - number)
        engine.submit(message(EchoPipeline()), (), {"texts": ["one"]})
    assert credit() == NONE


@pytest.mark.parametrize(
    ("band", "left"),
    [
        (Band.BULK, Quota(8, Band.NORMAL)),
        (Band.NORMAL, Quota(8, Band.INTERACTIVE)),
        (Band.INTERACTIVE, NONE),
    ],
    ids=["bulk", "normal", "interactive"],
)
def test_messages_of_one_band_leave_room_for_a_few_more_urgent_ones(
    credit: Credit, engine: Engine, band: Band, left: Quota
) -> None:
    for _ in range(40):
        engine.submit(replace(message(EchoPipeline()), band=band), (), {"texts": ["one"]})

    assert credit() == left


def test_the_few_urgent_ones_are_counted_too(credit: Credit, engine: Engine) -> None:
    for band in (Band.BULK, Band.NORMAL, Band.NORMAL, Band.INTERACTIVE):
        engine.submit(replace(message(EchoPipeline()), band=band), (), {"texts": ["one"]})
    for _ in range(40):
        engine.submit(replace(message(EchoPipeline()), band=Band.BULK), (), {"texts": ["one"]})

    assert credit() == Quota(5, Band.NORMAL)
    assert credit(arrived=6) == Quota(1, Band.INTERACTIVE)
    assert credit(arrived=7) == NONE


def test_a_message_that_has_ended_makes_room_again(credit: Credit) -> None:
    running = Engine({"echo": Lane(EchoModel(), BatchPolicy())}, heard := Heard(), runners=RUNNERS)
    credit.engine = running
    running.start()
    jobs = [message(EchoPipeline()) for _ in range(3)]
    for job in jobs:
        running.submit(job, (), {"texts": ["one"]})
    heard.wait_for("finished", *jobs)

    assert [running.jobs(band) for band in Band] == [0, 0, 0]
    running.stop(1.0)
