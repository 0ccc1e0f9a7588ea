"""A call that runs too long is cancelled; one that ignores that is reported."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.services import wait_until
from worker.errors import BatchTimeout, Draining
from worker.jobs import Cancellation
from worker.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER_S = 3600.0


class Stuck:
    """Counts how often a stuck call was reported."""

    def __init__(self) -> None:
        self.reports = 0

    def __call__(self) -> None:
        self.reports += 1


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


@pytest.fixture
def strict(stuck: Stuck) -> Iterator[Watchdog]:
    """A watchdog that is impatient twice."""
    watchdog = Watchdog(0.05, 0.05, stuck)
    watchdog.start()
    yield watchdog
    watchdog.stop()


@pytest.fixture
def patient(stuck: Stuck) -> Iterator[Watchdog]:
    watchdog = Watchdog(NEVER_S, NEVER_S, stuck)
    watchdog.start()
    yield watchdog
    watchdog.stop()


def test_a_late_call_is_cancelled_and_its_error_is_the_timeout(strict: Watchdog) -> None:
    terminated = threading.Event()

    def call() -> None:
        with strict.watch() as cancellation:
            cancellation.hook(terminated.set)
            assert terminated.wait(10)
            raise RuntimeError("terminated by the flag")

    with pytest.raises(BatchTimeout) as caught:
        call()

    assert caught.value.limit_s == 0.05
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_late_call_that_answers_all_the_same_has_answered(strict: Watchdog) -> None:
    with strict.watch() as cancellation:
        wait_until(lambda: cancellation.cancelled)


def test_what_a_call_may_wait_for_others_does_not_count(strict: Watchdog, stuck: Stuck) -> None:
    with strict.watch(NEVER_S) as waiting:
        with strict.watch() as late:
            wait_until(lambda: late.cancelled and stuck.reports)
        assert strict.longest_s() == 0.0

    assert not waiting.cancelled


def test_a_call_in_time_is_left_alone(patient: Watchdog) -> None:
    with patient.watch() as cancellation:
        pass

    assert not cancellation.cancelled


def test_an_error_in_time_stays_what_it_is(patient: Watchdog) -> None:
    with pytest.raises(ZeroDivisionError), patient.watch():
        raise ZeroDivisionError


def test_a_call_that_ignores_its_cancellation_is_reported_once(strict: Watchdog, stuck: Stuck) -> None:
    with strict.watch():
        wait_until(lambda: stuck.reports)

    with strict.watch() as later:
        pass

    assert stuck.reports == 1
    assert not later.cancelled


def test_calls_that_end_leave_nothing_to_report(strict: Watchdog, stuck: Stuck) -> None:
    for _ in range(10):
        with strict.watch() as cancellation:
            wait_until(lambda call=cancellation: call.cancelled)

    assert stuck.reports == 0


def test_a_stop_cancels_what_runs_and_that_is_no_timeout(patient: Watchdog) -> None:
    def call() -> None:
        with patient.watch() as cancellation:
            patient.stop()
            assert cancellation.cancelled
            raise RuntimeError("terminated by the flag")

    with pytest.raises(Draining):
        call()


def test_after_a_stop_no_call_begins(patient: Watchdog) -> None:
    patient.stop()

    with pytest.raises(Draining), patient.watch():
        pytest.fail("ran")


def test_a_hook_that_comes_late_is_called_at_once() -> None:
    cancellation = Cancellation()
    terminated = threading.Event()
    cancellation.cancel()

    cancellation.hook(terminated.set)

    assert terminated.is_set()
