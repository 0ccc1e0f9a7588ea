"""A worker like `batchmill worker` whose model obeys magic words: `python -m tests.faults.models`, for tests only.

The words stand in the tickets' texts, anywhere: `segfault` reads address 0, `exit` ends the process, `sleep250` makes a
batch take 250 ms, `outofmemory` raises MemoryError, `panic` what a Rust extension raises, `raise` a RuntimeError,
`stuck` never returns and cannot be cancelled; `unreadable` reads address 0 already where texts become tokens. Before
all that a line of the journal says what runs, and where. No code of the worker knows these words. The plain Celery task
`faults.nap` sleeps. In the directory `traps` beside the journal the worker finds at which steps of a bulk run to die.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.app import create_app, load_workload
from tasks.classify.pipeline import text_of
from tasks.commands.worker import leave, run, wait_for_broker
from tests.faults.steps import Traps, set_traps
from worker import logs
from worker.lifecycle import Workload
from worker.ops.probes import probing
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.messages import Truncation
    from tasks.classify.model import TicketClassifier
    from tasks.classify.pipeline import ClassifyPipeline
    from worker.jobs import Cancellation, Item, Job
    from worker.metrics import Metric
    from worker.settings import Settings

_MAGIC: Final = re.compile(r"\b(segfault|exit|outofmemory|panic|raise|stuck)\b|\bsleep(\d+)\b")


class PanicException(BaseException):  # as Rust extensions call it
    """What a panic in a Rust extension becomes: no `Exception`."""


class Spoilt(NamedTuple):
    """A row, with what it does to the model."""

    features: object
    job_id: str
    fault: str
    sleep_ms: int


class Run(NamedTuple):
    """A line of the journal: a batch that is about to run."""

    at_s: float
    pid: int
    job_ids: tuple[str, ...]


class Journal:
    """What ran where and when, in a file that outlives every worker. Times are monotonic, one clock for all processes.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, job_ids: Sequence[str]) -> None:
        """Note one batch. One `write` a line: processes may share the file, and a crash leaves it whole."""
        os.write(self._file, f"{time.monotonic()} {os.getpid()} {' '.join(job_ids)}\n".encode())

    def read(self) -> list[Run]:
        """Return every batch so far."""
        runs = (line.split() for line in self._path.read_text().splitlines())
        return [Run(float(at_s), int(pid), tuple(ids)) for at_s, pid, *ids in runs]


class MisbehavingModel:
    """A model whose rows may be `Spoilt`. Rows for warm-up are not."""

    def __init__(self, inner: TicketClassifier, journal: Journal) -> None:
        self.name = inner.name
        self.info = inner.info
        self.max_length = inner.max_length
        self.labels = inner.labels
        self.multi_label = inner.multi_label
        self._inner = inner
        self._journal = journal

    def sample(self, batch_size: int, length: int) -> list[object]:
        return self._inner.sample(batch_size, length)

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        rows = [row for row in features if isinstance(row, Spoilt)]
        if not rows:
            return self._inner.run(features, cancellation)
        self._journal.write([row.job_id for row in rows])
        time.sleep(max(row.sleep_ms for row in rows) / 1000)
        for row in rows:
            _misbehave(row.fault)
        return self._inner.run([row.features for row in rows], cancellation)


@dataclass(frozen=True)
class SpoilingPipeline:
    """A pipeline that spoils the rows whose texts hold a magic word, and names every row's job."""

    inner: ClassifyPipeline
    journal: Journal

    @property
    def reads(self) -> Metric:
        return self.inner.reads

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        self.inner.open(job, args, kwargs)

    def prepare(self, items: Sequence[Item]) -> None:
        texts = [str(text_of(item.source)) for item in items]  # type: ignore[arg-type] # always a ticket
        self._look(items, texts)
        self.inner.prepare(items)
        self._spoil(items, texts)
        for item in items:
            item.key = None  # a row for each item: no job hides behind another

    def encode(self, lane: str, items: Sequence[Item], texts: Sequence[str], truncation: Truncation) -> None:
        self._look(items, texts)
        self.inner.encode(lane, items, texts, truncation)
        self._spoil(items, texts)

    def complete(self, job: Job) -> dict[str, object]:
        return self.inner.complete(job)

    def _look(self, items: Sequence[Item], texts: Sequence[str]) -> None:
        unreadable = [item.job.id for item, text in zip(items, texts, strict=True) if "unreadable" in text]
        if unreadable:
            self.journal.write(unreadable)
            ctypes.string_at(0)

    def _spoil(self, items: Sequence[Item], texts: Sequence[str]) -> None:
        for item, text in zip(items, texts, strict=True):
            magic = _MAGIC.search(text)
            fault, sleep_ms = magic.groups() if magic else (None, None)
            item.features = Spoilt(item.features, item.job.id, fault or "", int(sleep_ms or 0))


def _misbehave(fault: str) -> None:
    match fault:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(1)
        case "outofmemory":
            raise MemoryError
        case "panic":
            raise PanicException("called `Option::unwrap()` on a `None` value")
        case "raise":
            raise RuntimeError("the model is broken")
        case "stuck":
            threading.Event().wait()


def main() -> None:
    settings = load()
    logs.configure(settings.log_level, settings.log_format)
    app = create_app(settings)
    journal = Journal(Path(sys.argv[1]))

    def load_misbehaving(settings: Settings) -> Workload:
        workload = load_workload(settings)
        return Workload(
            {name: MisbehavingModel(model, journal) for name, model in workload.models.items()},
            {task: SpoilingPipeline(pipeline, journal) for task, pipeline in workload.pipelines.items()},
        )

    def nap(task_id: str, seconds: float) -> None:
        journal.write([task_id])
        time.sleep(seconds)

    app.task(name="faults.nap")(nap)
    app.load = load_misbehaving
    set_traps(app, Traps(Path(sys.argv[1]).with_name("traps")))
    with probing(settings, app.vitals, app.tallies):
        wait_for_broker(settings)
        leave(run(app, task_events=False))


if __name__ == "__main__":
    main()
