"""What an engine has done, counted: for its own pace, for the jobs of a batch, and for the metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from worker.metrics import BATCH_ITEMS, BUSY, PADDED_UNITS, REAL_UNITS, STAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.jobs import Job
    from worker.lanes import Lane
    from worker.metrics import Metric
    from worker.planner import Batch
    from worker.tallies import Labels, Tallies

_INFERENCE = ("inference",)
_BATCH_WAIT = ("batch_wait",)
HALF_LIFE_S = 10.0  # of busy seconds: by then what was done before counts half


class Size(NamedTuple):
    """How large a batch is; added up once, for all who count it."""

    rows: int
    items: int
    real_tokens: int
    padded_tokens: int


def size_of(batch: Batch) -> Size:
    """Return the size of a batch."""
    return Size(len(batch.rows), sum(map(len, batch.rows)), batch.real_tokens, batch.padded_tokens)


@dataclass(slots=True)
class Pace:
    """What one runner gets done while it is busy, in units: tickets, pages. Older work counts less.

    What is no unit, such as a line of a page, takes time all the same; what has threads of its own, such as opening a
    document, takes no runner's.
    """

    units: float = 0.0
    busy_s: float = 0.0

    @property
    def per_s(self) -> float:
        """Units a second; 0 = nobody knows yet."""
        return self.units / self.busy_s if self.busy_s else 0.0

    def add(self, units: int, elapsed_s: float) -> None:
        """Take note of a batch; of a long one the beginning is old already, lest one that hung weigh for all."""
        ageing = math.log(2) * elapsed_s / HALF_LIFE_S
        kept = math.exp(-ageing)
        share = -math.expm1(-ageing) / ageing if ageing else 1.0
        self.units = self.units * kept + units * share
        self.busy_s = self.busy_s * kept + elapsed_s * share


@dataclass(slots=True)
class Stats:
    """What the engine did since it started, and its pace of late."""

    batches: int = 0
    rows: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    busy_s: float = 0.0
    pace: Pace = field(default_factory=Pace)

    def add(self, lane: Lane, size: Size, elapsed_s: float) -> None:
        """Count one batch."""
        if not lane.threads:
            self.pace.add(size.items if lane.is_unit else 0, elapsed_s)
        self.batches += 1
        self.rows += size.rows
        self.items += size.items
        self.real_tokens += size.real_tokens
        self.padded_tokens += size.padded_tokens
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
    apart_s = 0.0 if is_runner else elapsed_s
    for job in jobs:
        job.inference_s += elapsed_s
        job.apart_s += apart_s
        job.batch_size_max = max(job.batch_size_max, rows)
    share_s = elapsed_s / rows if is_runner else 0.0
    for row in batch.rows:
        first = row[0]
        job = first.job
        job.real_tokens += first.length
        job.padded_tokens += batch.length
        job.runner_s += share_s


def tally_batch(  # noqa: PLR0913 - a batch is all of these
    tallies: Tallies, lane: Lane, batch: Batch, size: Size, *, started_s: float, elapsed_s: float
) -> None:
    """Count a batch for the metrics."""
    labels = (lane.model.name,)
    values: list[tuple[Metric, Labels, float]] = [(BATCH_ITEMS, labels, size.items), (STAGE, _INFERENCE, elapsed_s)]
    if not batch.head.job.is_part:  # what is planned beforehand waits for its own kind
        values.append((STAGE, _BATCH_WAIT, started_s - min([row[0].queued_s for row in batch.rows])))
    amounts = (
        (REAL_UNITS, labels, size.real_tokens),
        (PADDED_UNITS, labels, size.padded_tokens),
        (BUSY, labels, elapsed_s),
    )
    tallies.note(amounts, values)
