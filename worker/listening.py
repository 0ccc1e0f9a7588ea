"""What an engine tells whoever runs it: the pool in a worker, the command in `batchmill classify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.jobs import Job


class Listener(Protocol):
    """Who wants to know what becomes of the jobs. Called from the engine's threads; must not block or raise."""

    def is_cancelled(self, job: Job) -> bool:
        """Return whether nobody waits for `job` any more; asked as each batch forms."""
        ...

    def started(self, jobs: Sequence[Job]) -> None:
        """The first batch of these jobs is about to run."""
        ...

    def finished(self, job: Job) -> None:
        """Every item of `job` has its outcome, or `job.error` says why the message failed."""
        ...

    def dropped(self, job: Job) -> None:
        """`job` was cancelled or has expired; it will not finish."""
        ...

    def running(self, jobs: Sequence[Job], *, alone: bool) -> None:
        """This thread prepares items of these jobs next, or runs a batch of them; of none = it no longer does."""
        ...

    def broken(self, reason: str) -> None:
        """The engine cannot go on: a call of the model is stuck, or one of its threads has died."""
        ...
