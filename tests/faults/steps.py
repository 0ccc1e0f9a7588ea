"""The steps of a bulk run at which a worker may be killed, and the traps that kill it there; for tests only.

A test arms a step by a file in a directory that all workers look into. A worker that comes to an armed step kills
itself, as `kill -9` would, once for each part or run, until the step has killed so often as it is armed for. The traps
stand around the object store and the commits that the worker is given; no code of the worker knows them.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from schemas.names import TASK_BULK_CLASSIFY, TASK_BULK_SHARD
from tasks.bulk.stores import Stores
from worker.storage.objects import store_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from worker.ledger import Commit
    from worker.lifecycle import BatchApp
    from worker.storage.objects import Creation, ObjectStore

IN_FLIGHT_S: Final = 0.006  # what a PUT to a server of this machine takes, about


class Step(StrEnum):
    """Where a worker may be killed, in the order of a run."""

    PLAN_UNSENT = "plan-unsent"
    PLAN_SENT = "plan-sent"
    SHARDS_UNSENT = "shards-unsent"
    SHARDS_SENT = "shards-sent"
    REJECTS_UNSENT = "rejects-unsent"
    REJECTS_SENT = "rejects-sent"
    PART_BEGUN = "part-begun"
    PART_WRITTEN = "part-written"
    PART_UNSENT = "part-unsent"
    PART_IN_FLIGHT = "part-in-flight"
    PART_SENT = "part-sent"
    MANIFEST_UNSENT = "manifest-unsent"
    MANIFEST_SENT = "manifest-sent"
    SUCCESS_SENT = "success-sent"
    ACK_UNSENT = "ack-unsent"
    ACK_SENT = "ack-sent"


OF_A_RUN: Final = (
    Step.PLAN_UNSENT,
    Step.PLAN_SENT,
    Step.SHARDS_UNSENT,
    Step.SHARDS_SENT,
    Step.MANIFEST_UNSENT,
    Step.MANIFEST_SENT,
    Step.SUCCESS_SENT,
)
"""The steps that a run comes to once; to the others each of its shards does."""

OF_A_SHARD: Final = tuple(step for step in Step if step not in OF_A_RUN)


class Traps:
    """The armed steps, for every process that is given the same directory.

    Args:
        directory: need not be there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def arm(self, step: Step, times: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Let a step kill so often, or do to its worker what another signal does."""
        self._directory.mkdir(exist_ok=True)
        (self._directory / step).write_text(f"{times} {number}")

    def sprung(self, step: Step) -> int:
        """Return how often a step has done it."""
        return len(list(self._directory.glob(f"{step}@*")))

    def is_armed(self, step: Step) -> bool:
        """Whether the step was armed, and may have killed since."""
        return (self._directory / step).exists()

    def spring(self, step: Step, name: str) -> None:
        """Die here if the step is armed and has not killed over this `name` yet."""
        if self._is_due(step, name):
            self._do(step)

    def spring_soon(self, step: Step, name: str) -> None:
        """Die, likewise, at some moment of what is done next, or soon after it."""
        if self._is_due(step, name):
            threading.Timer(random.uniform(0, IN_FLIGHT_S), self._do, (step,)).start()  # noqa: S311 - no secret

    def _do(self, step: Step) -> None:
        os.kill(os.getpid(), self._armed(step)[1])

    def _armed(self, step: Step) -> tuple[int, int]:
        times, number = (self._directory / step).read_text().split()
        return int(times), int(number)

    def _is_due(self, step: Step, name: str) -> bool:
        if not self.is_armed(step) or self.sprung(step) >= self._armed(step)[0]:
            return False
        try:
            (self._directory / f"{step}@{name.replace('/', '_')}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class TrappedStore:
    """An object store with traps before and after what it writes. What it reads goes straight through."""

    def __init__(self, store: ObjectStore, traps: Traps) -> None:
        self._store = store
        self._traps = traps

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def create(self, uri: str, source: Path, sha256: str) -> Creation:
        kind = "rejects" if uri.endswith(".rejects") else "part"
        self._traps.spring(Step(f"{kind}-unsent"), uri)
        if kind == "part":
            self._traps.spring_soon(Step.PART_IN_FLIGHT, uri)
        created = self._store.create(uri, source, sha256)
        self._traps.spring(Step(f"{kind}-sent"), uri)
        return created

    def put_bytes(self, uri: str, content: bytes, *, only_new: bool = False) -> Creation:
        kind = {"plan.json": "plan", "manifest.json": "manifest", "_SUCCESS": "success"}.get(uri.rpartition("/")[2])
        if kind in ("plan", "manifest"):
            self._traps.spring(Step(f"{kind}-unsent"), uri)
        created = self._store.put_bytes(uri, content, only_new=only_new)
        if kind is not None:
            self._traps.spring(Step(f"{kind}-sent"), uri)
        return created


def set_traps(app: BatchApp, traps: Traps) -> None:
    """Put the traps around what an application's bulk tasks write, and around its commits."""
    for task in app.tasks.keys() & {TASK_BULK_CLASSIFY, TASK_BULK_SHARD}:
        app.tasks[task].stores = Stores(lambda uri: TrappedStore(store_for(uri), traps))
    app.custody.ledger.commit = _trapped_commit(app.custody.ledger.commit, traps)
    if traps.is_armed(Step.PART_BEGUN) or traps.is_armed(Step.PART_WRITTEN):
        sys.addaudithook(lambda event, arguments: _watch_part(traps, event, arguments))


def _trapped_commit(commit: Any, traps: Traps) -> Any:  # noqa: ANN401 - a bound method
    def trapped(commits: Sequence[Commit]) -> list[int]:
        bulk = [one.held.task_id for one in commits if one.held.queue == "bulk"]
        for task_id in bulk:
            traps.spring(Step.ACK_UNSENT if ":" in task_id else Step.SHARDS_UNSENT, task_id)
        answers: list[int] = commit(commits)
        for task_id in bulk:
            traps.spring(Step.ACK_SENT if ":" in task_id else Step.SHARDS_SENT, task_id)
        return answers

    return trapped


def _watch_part(traps: Traps, event: str, arguments: tuple[object, ...]) -> None:
    """Die when a part is begun on the worker's disk, or just before it gets its name there."""
    if event in ("open", "os.rename") and str(arguments[0]).endswith("part.parquet.partial"):
        step = Step.PART_WRITTEN if event == "os.rename" else Step.PART_BEGUN
        if step is Step.PART_WRITTEN or "w" in str(arguments[1]):  # not as it is read back
            traps.spring(step, uuid.uuid4().hex)
