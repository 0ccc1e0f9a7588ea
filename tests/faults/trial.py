"""A fault run under way: a server, a fleet, the books, and the figures that it will report."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests.faults.accounting import Account, Books, percentile, restarts_s
from tests.faults.fleet import Fleet
from tests.faults.models import Journal
from tests.faults.oracle import endless_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.oracle import Oracle
    from tests.faults.report import Figures
    from tests.faults.servers import Server


class Form(StrEnum):
    """How much is run."""

    SHORT = "short"
    FULL = "full"
    LONG = "long"


FORM: Final = Form(os.environ.get("FAULTS", Form.SHORT))
FULL_ONLY: Final = pytest.mark.skipif(FORM is Form.SHORT, reason="not in the short form")


class Trial:
    """One fault run. Leaving its context ends the workers.

    Args:
        server: started.
        model: directory of the model.
        directory: for logs.
        oracle: knows the right labels.
        figures: what will be reported.
    """

    def __init__(self, server: Server, model: Path, directory: Path, oracle: Oracle, figures: Figures) -> None:
        self.server = server
        self.books = Books(server, oracle)
        self.fleet = Fleet(server, model, directory, self.books.held_by)
        self.journal = Journal(self.fleet.journal_path)
        self.figures = figures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.stop()
        self.books.stop()

    def pick(self, *, short: int, full: int, long: int | None = None) -> int:
        """Return the number for the form that is run."""
        return {Form.SHORT: short, Form.FULL: full, Form.LONG: full if long is None else long}[FORM]

    @contextmanager
    def trickle(self, per_s: float, *magic: str) -> Iterator[None]:
        """Send so many jobs a second while the block runs."""
        over = threading.Event()
        texts = takewhile(lambda _: not over.is_set(), endless_texts(*magic, seed=99))
        sender = threading.Thread(target=self.books.send, args=(texts,), kwargs={"per_s": per_s})
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()

    def account(self, timeout_s: float = 60.0) -> Account:
        """Wait for every job's end and close the books."""
        self.books.wait_ended(timeout_s)
        account = self.books.close()
        self.figures.jobs = account.jobs
        self.figures.lost = len(account.lost)
        self.figures.doubled = len(account.doubled)
        latencies_s = restarts_s(self.fleet.kills, self.journal.read(), self.books.announced_s)
        self.figures.restart_p99_s = percentile(latencies_s, 0.99)
        return account

    def runs(self) -> Counter[str]:
        """Return by task id how many batches a job was in."""
        return Counter(task_id for run in self.journal.read() for task_id in run.job_ids)

    def runs_of(self, task_id: str) -> int:
        """Return how many batches one job was in."""
        return self.runs()[task_id]

    def runs_on(self, name: str) -> int:
        """Return how many batches the worker of this name, in its present life, has run."""
        pid = self.fleet[name].process.pid
        return sum(run.pid == pid for run in self.journal.read())

    def rerun(self) -> list[str]:
        """Return the jobs that ran again after their end had been announced."""
        return [
            task_id
            for run in self.journal.read()
            for task_id in run.job_ids
            if (end_s := self.books.announced_s(task_id)) is not None and run.at_s > end_s
        ]
