"""Which messages an engine has, and how many of those that were fetched on credit, by band.

Counted as they come and go: whoever fetches asks after every batch, and there may be hundreds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.names import Band

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.jobs import Job


class Roster:
    """The messages that have come and have not ended. Every call but `on_credit` needs the engine's lock held."""

    def __init__(self) -> None:
        self._jobs: set[Job] = set()
        self._on_credit = [0] * len(Band)

    def __contains__(self, job: object) -> bool:
        """Say whether a job is one of them."""
        return job in self._jobs

    def __iter__(self) -> Iterator[Job]:
        """Yield each of them once."""
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """Take note that a message has come."""
        self._jobs.add(job)
        self._on_credit[job.band] += job.is_on_credit

    def discard(self, job: Job) -> None:
        """Take note that it has ended, if it is one of them."""
        if job in self._jobs:
            self._jobs.discard(job)
            self._on_credit[job.band] -= job.is_on_credit

    def on_credit(self, band: Band) -> int:
        """Return how many of this band or a more urgent one were fetched on credit."""
        return sum(self._on_credit[: band + 1])
