"""What an engine has done, counted: for its own pace, for the jobs of a batch, and for the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.metrics import BATCH_ITEMS, BUSY, PADDED_UNITS, REAL_UNITS, STAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.jobs import Job
    from worker.planner import Batch
    from worker.tallies import Tallies

RATE_WEIGHT = 0.1  # of the newest batch in the moving average


@dataclass(slots=True)
class Stats:
    """What the engine did since it started; `items_per_s` is one busy runner's moving average."""

    batches: int = 0
    rows: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    busy_s: float = 0.0
    items_per_s: float = 0.0

    def add(self, batch: Batch, elapsed_s: float) -> None:
        """Count one batch."""
        rate = len(batch.items) / max(elapsed_s, 1e-6)
        self.items_per_s += (rate - self.items_per_s) * (RATE_WEIGHT if self.batches else 1.0)
        self.batches += 1
        self.rows += len(batch.rows)
        self.items += len(batch.items)
        self.real_tokens += batch.real_tokens
        self.padded_tokens += batch.padded_tokens
        self.busy_s += elapsed_s


def attribute(batch: Batch, jobs: Iterable[Job], elapsed_s: float, *, is_runner: bool) -> None:
    """Add what a batch has cost to its jobs.

    Args:
        batch: that has run.
        jobs: those of its items, each once.
        elapsed_s: how long it ran.
        is_runner: whether a runner ran it, and not a thread of the lane's own.
    """
    rows = len(batch.rows)
    for job in jobs:
        job.inference_s += elapsed_s
        job.batch_size_max = max(job.batch_size_max, rows)
    share_s = elapsed_s / rows if is_runner else 0.0
    for row in batch.rows:
        first = row[0]
        job = first.job
        job.real_tokens += first.length
        job.padded_tokens += batch.length
        job.runner_s += share_s


def tally_batch(tallies: Tallies, lane: str, batch: Batch, started_s: float, elapsed_s: float) -> None:
    """Count a batch for the metrics."""
    labels = (lane,)
    tallies.add(
        (REAL_UNITS, labels, batch.real_tokens), (PADDED_UNITS, labels, batch.padded_tokens), (BUSY, labels, elapsed_s)
    )
    tallies.observe(BATCH_ITEMS, labels, (sum(map(len, batch.rows)),))
    tallies.observe(STAGE, ("inference",), (elapsed_s,))
    if batch.head.job.waiter is None:  # what is planned beforehand waits for its own kind
        tallies.observe(STAGE, ("batch_wait",), (started_s - min(row[0].queued_s for row in batch.rows),))
