"""The number that an autoscaler asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from worker.ops.scaling import Demand, Targets, backlog_s, by_band

IDLE = (0.0, 0.0, 0.0)
TARGETS = Targets(20.0, 1800.0)
BULK = 20 / 1800


def demand(
    waiting: tuple[int, int, int] = (0, 0, 0),
    load: tuple[float, float, float] = IDLE,
    in_flight: int = 0,
    workers: int = 1,
    rate: float | None = 2.0,
) -> Demand:
    return Demand(waiting, load, in_flight, workers, rate)


@pytest.mark.parametrize(
    ("of", "seconds"),
    [
        pytest.param(demand(), 0, id="nothing"),
        pytest.param(demand((100, 0, 0)), 50, id="what waits, by the rate"),
        pytest.param(demand((100, 60, 0), workers=0), 80, id="no worker: the stored rate"),
        pytest.param(demand(load=(1, 0, 0), in_flight=1), 20, id="one busy worker wants one"),
        pytest.param(demand(load=(2.5, 1.25, 0), in_flight=900, workers=4), 75, id="several, whatever they hold"),
        pytest.param(demand((10, 0, 0), (3, 0, 0), 24, workers=3), 65, id="waiting and busy"),
        pytest.param(demand((0, 0, 900)), 450 * BULK, id="bulk that waits counts less"),
        pytest.param(demand(load=(0, 0, 9), in_flight=72, workers=9), 180 * BULK, id="bulk in progress, too"),
        pytest.param(demand((4, 0, 900), (1, 0, 9), 80, workers=9), 22 + 630 * BULK, id="all together"),
        pytest.param(demand(in_flight=4), 2, id="just fetched: as if it waited"),
        pytest.param(demand((0, 0, 900), in_flight=800, workers=2), 40 + 450 * BULK, id="by workers that exist"),
        pytest.param(demand(in_flight=800, workers=0), 400, id="held by the dead: it will wait again"),
        pytest.param(demand((5, 0, 0), (0.01, 0, 0), 8), 2.7, id="a little load is a load"),
        pytest.param(demand((5, 0, 0), rate=None), None, id="no rate"),
        pytest.param(replace(demand((8, 4, 900)), sizes=(0.25, 1, 5)), 1 + 2 + 2250 * BULK, id="sizes of bands"),
        pytest.param(replace(demand(in_flight=4), sizes=(0.25, 1, 5)), 2, id="just fetched, of whatever band"),
    ],
)
def test_workers_wanted_are_these_seconds_by_the_target(of: Demand, seconds: float | None) -> None:
    assert backlog_s(of, TARGETS) == (None if seconds is None else pytest.approx(seconds))


def test_bulk_work_with_a_short_target_of_its_own_counts_like_any_other() -> None:
    for bulk_target_s in (20.0, 5.0):
        assert backlog_s(demand((0, 0, 10), (0, 0, 1), 1), Targets(20.0, bulk_target_s)) == pytest.approx(25)


def test_a_queue_with_any_message_never_wants_nothing() -> None:
    """KEDA would end the last worker under it."""
    for interactive, bulk, in_flight, load, workers in product((0, 1), (0, 1), (0, 1), (0.0, 0.01), (0, 1)):
        of = demand((interactive, 0, bulk), (0, 0, load), in_flight, workers, rate=10_000.0)
        wanted_s = backlog_s(of, Targets(1.0, 86_400.0))
        assert wanted_s is not None
        assert (wanted_s > 0) is bool(interactive or bulk or in_flight or load)
        assert math.isfinite(wanted_s)


def test_a_list_waits_in_the_band_of_its_priority() -> None:
    assert by_band((1, 20, 300, 4000)) == (1, 20, 4300)
