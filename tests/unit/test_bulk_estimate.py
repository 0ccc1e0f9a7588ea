"""An estimate says how long a run takes and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.bulk.estimate import estimate


@pytest.mark.parametrize(
    ("workers", "wall_s", "cost"),
    [
        pytest.param(1, 60.0, 0.06, id="one worker"),
        pytest.param(2, 40.0, 0.08, id="the last shard counts"),
        pytest.param(3, 20.0, 0.06, id="a shard each"),
        pytest.param(9, 20.0, 0.18, id="idle workers cost"),
    ],
)
def test_time_and_cost_follow_from_speed_workers_and_price(workers: int, wall_s: float, cost: float) -> None:
    made = estimate([200, 200, 200], 10.0, workers, price_per_hour=3.6)

    assert (made.rows, made.shards, made.work_s, made.wall_s) == (600, 3, 60.0, wall_s)
    assert made.cost == pytest.approx(cost)


@given(st.lists(st.integers(0, 10_000), max_size=50), st.integers(1, 20))
def test_time_is_between_a_perfect_split_and_a_shard_more(shards: list[int], workers: int) -> None:
    made = estimate(shards, 1.0, workers)

    assert sum(shards) / workers <= made.wall_s + 1e-6
    assert made.wall_s <= sum(shards) / workers + max(shards, default=0)
    assert made.cost is None


@pytest.mark.parametrize(("rows_per_s", "workers", "price"), [(0.0, 1, None), (1.0, 0, None), (1.0, 1, -1.0)])
def test_an_estimate_of_nonsense_is_an_error(rows_per_s: float, workers: int, price: float | None) -> None:
    with pytest.raises(ValueError, match=r"speed|negative"):
        estimate([1], rows_per_s, workers, price)
