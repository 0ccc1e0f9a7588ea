"""What the stamps of a worker's parts add up to."""

from __future__ import annotations

import threading

import pytest

from tests.waiting import Clock
from worker.vitals import Vitals


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def vitals(clock: Clock) -> Vitals:
    """Of a worker that has started and is connected."""
    made = Vitals(["classify", "bulk"], broker_s=12.0, clock=clock)
    made.started([threading.current_thread()], lambda: 3.0, lambda: False)
    made.connected()
    return made


def test_before_the_engine_is_up_it_says_what_it_does(clock: Clock) -> None:
    vitals = Vitals(["classify"], broker_s=12.0, clock=clock)
    vitals.starting = "it loads its models"
    assert vitals.facts().starting == "it loads its models"
    assert not vitals.facts().is_connected


def test_a_queue_counts_as_served_once_a_fetcher_has_looked_at_it_since_the_connection(
    vitals: Vitals, clock: Clock
) -> None:
    assert vitals.facts().unserved == ("classify", "bulk")
    clock.advance(1)
    vitals.fetched(["classify"])
    assert vitals.facts().unserved == ("bulk",)
    clock.advance(1)
    vitals.disconnected()
    vitals.connected()
    assert vitals.facts().unserved == ("classify", "bulk")


def test_silence_counts_from_the_last_cycle_of_each_queue(vitals: Vitals, clock: Clock) -> None:
    clock.advance(5)
    vitals.fetched(["classify"])
    clock.advance(7)
    assert vitals.facts().unfetched_s == {"classify": 7, "bulk": 12}


def test_silence_counts_from_no_earlier_than_the_connection(vitals: Vitals, clock: Clock) -> None:
    vitals.fetched(["classify"])
    clock.advance(100)
    vitals.connected()
    clock.advance(3)
    assert vitals.facts().unfetched_s == {"classify": 3, "bulk": 3}


def test_silence_counts_from_no_earlier_than_the_end_of_an_outage(vitals: Vitals, clock: Clock) -> None:
    clock.advance(100)
    assert vitals.facts().unheard_s == 100
    vitals.heard()
    clock.advance(3)
    vitals.heard()  # a short silence is no outage
    assert vitals.facts().unfetched_s == {"classify": 3, "bulk": 3}


def test_the_event_loop_lives_as_long_as_it_turns_connects_or_loses_its_connection(
    vitals: Vitals, clock: Clock
) -> None:
    for sign in (vitals.turned, vitals.connected, vitals.disconnected):
        clock.advance(50)
        assert vitals.facts().loop_silent_s == 50
        sign()
        assert vitals.facts().loop_silent_s == 0


def test_a_thread_that_has_ended_is_named(clock: Clock) -> None:
    gone = threading.Thread(target=lambda: None, name="runner-0")
    gone.start()
    gone.join()
    vitals = Vitals(["classify"], broker_s=12.0, clock=clock)
    vitals.started([threading.current_thread(), gone], lambda: 3.0, lambda: True)
    facts = vitals.facts()
    assert (facts.dead_threads, facts.longest_call_s, facts.draining) == (("runner-0",), 3.0, True)
