"""Batches run side by side; a suspect waits for all of them and keeps them all out."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.services import wait_until
from worker.floor import Floor

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_YET_S = 0.05


class Visitor:
    """A thread that takes the floor and keeps it until told to leave."""

    def __init__(self, floor: Floor, *, alone: bool) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self._floor = floor
        self._alone = alone
        self._thread = threading.Thread(target=self._visit, daemon=True)
        self._thread.start()

    def is_in(self) -> bool:
        return self.entered.wait(10)

    def is_kept_out(self) -> bool:
        return not self.entered.wait(NOT_YET_S)

    def go(self) -> None:
        self.leave.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _visit(self) -> None:
        with self._floor.held(alone=self._alone):
            self.entered.set()
            self.leave.wait()


@pytest.fixture
def floor() -> Floor:
    return Floor()


@contextmanager
def visiting(floor: Floor, *, alone: bool = False) -> Iterator[Visitor]:
    visitor = Visitor(floor, alone=alone)
    try:
        yield visitor
    finally:
        visitor.go()


def test_batches_run_side_by_side(floor: Floor) -> None:
    with visiting(floor) as one, visiting(floor) as other:
        assert one.is_in()
        assert other.is_in()


def test_a_suspect_waits_until_all_others_are_done(floor: Floor) -> None:
    with visiting(floor) as one, visiting(floor) as other:
        assert one.is_in()
        assert other.is_in()
        with visiting(floor, alone=True) as suspect:
            assert suspect.is_kept_out()
            one.go()
            assert suspect.is_kept_out()
            other.go()
            assert suspect.is_in()


@pytest.mark.parametrize("alone", [False, True], ids=["a batch", "another suspect"])
def test_nobody_runs_beside_a_suspect(floor: Floor, *, alone: bool) -> None:
    with visiting(floor, alone=True) as suspect:
        assert suspect.is_in()
        with visiting(floor, alone=alone) as other:
            assert other.is_kept_out()
            suspect.go()
            assert other.is_in()


def test_a_waiting_suspect_is_not_overtaken_for_ever(floor: Floor) -> None:
    with visiting(floor) as running:
        assert running.is_in()
        with visiting(floor, alone=True) as suspect:
            assert suspect.is_kept_out()
            with visiting(floor) as late:
                assert late.is_kept_out()
                running.go()
                assert suspect.is_in()
                assert late.is_kept_out()
                suspect.go()
                assert late.is_in()


@pytest.mark.parametrize("alone", [False, True], ids=["side by side", "alone"])
def test_a_batch_that_fails_leaves_the_floor(floor: Floor, *, alone: bool) -> None:
    with pytest.raises(MemoryError), floor.held(alone=alone):
        raise MemoryError

    with visiting(floor, alone=True) as next_one:
        assert next_one.is_in()


def test_many_take_turns_and_no_suspect_ever_has_company(floor: Floor) -> None:
    inside: list[bool] = []
    seen: list[tuple[bool, ...]] = []

    def run(*, alone: bool) -> None:
        for _ in range(50):
            with floor.held(alone=alone):
                inside.append(alone)
                seen.append(tuple(inside))
                inside.remove(alone)

    threads = [threading.Thread(target=run, kwargs={"alone": number % 3 == 0}) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    wait_until(lambda: not any(thread.is_alive() for thread in threads))
    assert len(seen) == 300
    assert all(company == (True,) for company in seen if True in company)
