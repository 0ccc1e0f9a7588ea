"""What runs here, by the message that it runs for.

Why it exists: a message keeps its delivery tag. If its claim is lost while it runs and it comes back to this worker, it
runs here twice: the older run, whose end nobody records any more, must not take the newer one with it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from worker.slots import Slot


class _Run(NamedTuple):
    request: Any  # Celery's
    work: Job | Slot | None


class Runs:
    """The newest run of each message. Thread-safe; never blocks for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def begin(self, request: Any, work: Job | Slot | None = None) -> None:  # noqa: ANN401 - Celery's request
        """Take note of a run; None = a thread will work on it, and say with what."""
        with self._lock:
            self._runs[request.message.delivery_tag] = _Run(request, work)

    def occupy(self, request: Any, slot: Slot) -> None:  # noqa: ANN401 - Celery's request
        """Say which slot works on a run, if that has not ended."""
        with self._lock:
            if self._of(request) is not None:
                self._runs[request.message.delivery_tag] = _Run(request, slot)

    def work_of(self, request: Any) -> Job | Slot | None:  # noqa: ANN401 - Celery's request
        """Return what works on a run; None if that has ended, or its message has come again."""
        with self._lock:
            run = self._of(request)
        return None if run is None else run.work

    def end(self, request: Any) -> None:  # noqa: ANN401 - Celery's request
        """Forget a run, and let go of its job, which nobody will read again."""
        with self._lock:
            run = self._of(request)
            if run is None:
                return
            del self._runs[request.message.delivery_tag]
        if isinstance(run.work, Job):
            run.work.let_go()

    def lose(self, tags: Iterable[str], held: Container[str]) -> list[Job]:
        """Forget the runs of messages that others have taken; return the jobs of them.

        Args:
            tags: of the messages.
            held: the tags of what is held now; a message that has come again by then keeps its newer run.
        """
        with self._lock:
            gone = [tag for tag in tags if tag not in held]
            lost = [run.work for tag in gone if (run := self._runs.pop(tag, None)) is not None]
        return [work for work in lost if isinstance(work, Job)]

    def tags(self) -> set[str]:
        """Return the delivery tags of the messages that run here."""
        with self._lock:
            return set(self._runs)

    def _of(self, request: Any) -> _Run | None:  # noqa: ANN401 - Celery's request
        run = self._runs.get(request.message.delivery_tag)
        return run if run is not None and run.request is request else None
