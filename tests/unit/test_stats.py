"""An engine's pace is what its runners get done: pages by the time of their lines too, opened documents not at all."""

from __future__ import annotations

import pytest

from tests.echo import EchoModel
from worker.lanes import Lane
from worker.planner import BatchPolicy
from worker.stats import HALF_LIFE_S, Pace, Size, Stats


def lane(*, is_unit: bool = True, threads: int = 0) -> Lane:
    return Lane(EchoModel(), BatchPolicy(), is_unit=is_unit, threads=threads)


def size(items: int) -> Size:
    return Size(rows=items, items=items, real_tokens=items, padded_tokens=items)


def test_the_pace_is_units_over_the_time_that_they_took() -> None:
    stats = Stats()
    stats.add(lane(), size(8), 0.02)
    stats.add(lane(), size(32), 0.06)
    assert stats.pace.per_s == pytest.approx(500, rel=0.01)


def test_a_page_takes_as_long_as_it_and_its_lines_and_opening_a_document_takes_no_runner() -> None:
    stats = Stats()
    for _ in range(5):
        stats.add(lane(is_unit=False, threads=4), size(1), 0.002)  # a document
        stats.add(lane(), size(1), 0.6)  # its page
        for _ in range(10):
            stats.add(lane(is_unit=False), size(4), 0.04)  # lines of it
    assert stats.pace.per_s == pytest.approx(1.0, rel=0.05)
    assert (stats.batches, stats.items) == (60, 210)


def test_nothing_done_is_no_pace() -> None:
    assert Stats().pace.per_s == 0.0


def test_what_was_long_ago_is_forgotten() -> None:
    pace = Pace()
    for _ in range(100):
        pace.add(10, 1.0)
    for _ in range(20):
        pace.add(2, HALF_LIFE_S / 2)
    assert pace.per_s == pytest.approx(2 / (HALF_LIFE_S / 2), rel=0.1)


def test_a_batch_that_ran_into_its_time_limit_is_forgotten_as_fast_as_any() -> None:
    pace = Pace()
    for seconds in (0.1, 60.0):
        pace.add(20, seconds)
    for _ in range(100):
        pace.add(20, HALF_LIFE_S / 100)
    assert pace.per_s == pytest.approx(100, rel=0.05), "half of what it is now"
