"""How long a bulk run will take and what it will cost: the answer to `--plan`.

It supposes equal workers that do nothing else and start at once; it knows neither prices nor machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes.

    Attributes:
        rows: all that are still to do.
        shards: likewise.
        work_s: seconds of one worker, added up.
        wall_s: from the first shard's start to the last one's end.
        cost: of the workers for `wall_s`, in the currency of the price; None without a price.
    """

    rows: int
    shards: int
    work_s: float
    wall_s: float
    cost: float | None


def estimate(
    shard_rows: Sequence[int], rows_per_s: float, workers: int = 1, price_per_hour: float | None = None
) -> Estimate:
    """Estimate a run of shards that workers take in order, each as soon as it is free.

    Args:
        shard_rows: rows of each shard that is still to do.
        rows_per_s: what one worker does.
        workers: how many there are; those beyond the number of shards idle, and cost all the same.
        price_per_hour: of one worker.

    Raises:
        ValueError: the speed or the number of workers is not positive, or the price is negative.
    """
    if rows_per_s <= 0 or workers < 1:
        raise ValueError("an estimate needs a speed and at least one worker")
    if price_per_hour is not None and price_per_hour < 0:
        raise ValueError("the price per hour is negative")
    free_at_rows = [0] * workers
    heapify(free_at_rows)
    for rows in shard_rows:
        heapreplace(free_at_rows, free_at_rows[0] + rows)
    wall_s = max(free_at_rows) / rows_per_s
    cost = None if price_per_hour is None else price_per_hour * workers * wall_s / _HOUR_S
    return Estimate(sum(shard_rows), len(shard_rows), sum(shard_rows) / rows_per_s, wall_s, cost)
