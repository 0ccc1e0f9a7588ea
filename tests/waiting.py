"""A clock that stands still, and jobs whose items wait for a batch: what the batcher's tests are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.names import Band
from worker.jobs import Item, Job
from worker.metrics import TOKENS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence


class Clock:
    """Monotonic seconds that move only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class NoPipeline:
    """For a batcher, which never asks what its items mean."""

    reads = TOKENS

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        raise NotImplementedError

    def prepare(self, items: Sequence[Item]) -> None:
        raise NotImplementedError

    def spawn(self, item: Item) -> Sequence[Item]:
        raise NotImplementedError

    def complete(self, job: Job) -> dict[str, object]:
        raise NotImplementedError


def make_job(name: str, band: Band = Band.INTERACTIVE, deadline_s: float | None = None) -> Job:
    """A job without items."""
    return Job(name, NoPipeline(), 0.0, band=band, deadline_s=deadline_s)


def add_items(job: Job, lengths: Iterable[int], keys: Iterable[Hashable] | None = None) -> list[Item]:
    """Give `job` prepared items of these lengths, and return them."""
    lengths = list(lengths)
    added = [
        Item(job, len(job.items) + position, None, length=length, key=key)
        for position, (length, key) in enumerate(
            zip(lengths, [None] * len(lengths) if keys is None else keys, strict=True)
        )
    ]
    job.items.extend(added)
    return added
