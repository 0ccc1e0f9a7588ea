"""How busy a worker was lately, by queue and band."""

from __future__ import annotations

import pytest

from schemas.names import Band
from tests.waiting import Clock
from worker.jobs import Charge
from worker.loads import SMOOTHING_S, Loads, from_text, to_text

URGENT = Charge("classify", Band.INTERACTIVE)
NIGHTLY = Charge("classify", Band.BULK)
SHARD = Charge("bulk", Band.BULK)
LONG_S = 10 * SMOOTHING_S
LOOK_S = 4.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loads(clock: Clock) -> Loads:
    return Loads(clock)


def test_a_worker_that_did_nothing_has_nothing_to_say(loads: Loads, clock: Clock) -> None:
    clock.advance(LOOK_S)
    assert loads.now() == {}


def test_steady_work_comes_to_one_and_fades_once_it_has_ended(loads: Loads, clock: Clock) -> None:
    with loads.busy("runners", {URGENT: 1.0}):
        clock.advance(SMOOTHING_S)
        assert loads.now()["classify"] == pytest.approx((0.63, 0, 0), abs=0.01)
        clock.advance(LONG_S)
        assert loads.now()["classify"] == pytest.approx((1, 0, 0), abs=0.001)
    clock.advance(SMOOTHING_S)
    assert loads.now()["classify"] == pytest.approx((0.37, 0, 0), abs=0.01)
    clock.advance(LONG_S)
    assert to_text(loads.now()) == "0.00 0.00 0.00 classify"


def test_what_still_runs_counts_as_often_as_somebody_looks_and_once(loads: Loads, clock: Clock) -> None:
    with loads.busy("runners", {URGENT: 1.0}):
        for _ in range(round(SMOOTHING_S / LOOK_S)):
            clock.advance(LOOK_S)
            loads.now()
        clock.advance(LOOK_S / 2)
    clock.advance(LOOK_S / 2)
    assert loads.now()["classify"] == pytest.approx((0.63, 0, 0), abs=0.02)


def test_short_work_counts_for_its_share_of_the_time(loads: Loads, clock: Clock) -> None:
    for _ in range(round(LONG_S / LOOK_S)):
        with loads.busy("runners", {URGENT: 0.5}):  # one of two runners
            clock.advance(LOOK_S / 2)
        clock.advance(LOOK_S / 2)
        loads.now()
    assert loads.now()["classify"] == pytest.approx((0.25, 0, 0), abs=0.01)


def test_a_batch_of_several_bands_and_queues_is_shared(loads: Loads, clock: Clock) -> None:
    with loads.busy("runners", {URGENT: 0.5, NIGHTLY: 0.125, SHARD: 0.375}):
        clock.advance(LONG_S)
    assert loads.now() == {
        "classify": pytest.approx((0.5, 0, 0.125), abs=0.01),
        "bulk": pytest.approx((0, 0, 0.375), abs=0.01),
    }


def test_the_resource_that_is_occupied_most_decides(loads: Loads, clock: Clock) -> None:
    with loads.busy("slots", {SHARD: 0.5}), loads.busy("runners", {SHARD: 0.9}):
        clock.advance(LONG_S)
    loads.note("finisher", URGENT, 2 * LONG_S)  # noted late
    assert loads.now() == {
        "bulk": pytest.approx((0, 0, 0.9), abs=0.01),
        "classify": (1.0, 0, 0),
    }


def test_two_looks_at_one_moment_differ_in_nothing(loads: Loads, clock: Clock) -> None:
    with loads.busy("runners", {URGENT: 1.0}):
        clock.advance(LOOK_S)
        assert loads.now() == loads.now()


def test_what_fails_was_busy_until_then(loads: Loads, clock: Clock) -> None:
    def fail() -> None:
        with loads.busy("runners", {URGENT: 1.0}):
            clock.advance(LONG_S)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    clock.advance(LONG_S)
    assert loads.now()["classify"] == pytest.approx((0.5, 0, 0), abs=0.01)


def test_a_text_says_what_was_written_down() -> None:
    loads = {"classify": (0.25, 0.0, 1.0), "a queue of mine": (0.0, 0.5, 0.0)}
    assert from_text(to_text(loads)) == loads
    assert from_text(to_text({})) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("busy", "unpack"),
        ("1 2 classify", "unpack"),
        ("a b c classify", "convert"),
        ("nan 0 0 classify", "between 0 and 1"),
        ("0 0 7 classify", "between 0 and 1"),
    ],
)
def test_what_no_worker_wrote_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_text(text)
