"""What a commit has recorded, added up by task, model and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.names import Band
from tests.echo import EchoModel, Heard
from tests.telling import news
from tests.waiting import add_items, make_job
from worker.accounts import Accounts
from worker.engine import Engine
from worker.jobs import Charge
from worker.lanes import Lane
from worker.metering import Meter
from worker.metrics import ITEMS, JOBS, LABELS, PIXELS, STAGE, TOKENS
from worker.planner import BatchPolicy
from worker.rates import NO_NEWS, News
from worker.slots import Slot
from worker.tallies import Tallies

if TYPE_CHECKING:
    from worker.jobs import Job

RUNNERS = 2


class Books:
    """Accounts, and what they write into."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self.meter = Meter()
        self.accounts = Accounts(self.tallies, self.meter)


@pytest.fixture
def books() -> Books:
    return Books()


def done(outcomes: tuple[str, ...] = (), labels: tuple[str, ...] = (), **seen: int) -> Job:
    job = make_job("a job")
    add_items(job, [1] * max(len(outcomes), 1))
    for item in job.items:
        item.lane = "tiny"
    job.charge = Charge("classify", Band.INTERACTIVE)
    job.outcomes, job.labels = outcomes, labels
    job.tokens, job.pixels = seen.get("tokens", 0), seen.get("pixels", 0)
    return job


@pytest.mark.parametrize(
    ("state", "end"),
    [("SUCCESS", "succeeded"), ("FAILURE", "failed"), ("REVOKED", "cancelled"), ("IGNORED", "cancelled")],
)
def test_a_message_counts_by_its_end(books: Books, state: str, end: str) -> None:
    books.accounts.job("classify.tickets", state, done())
    books.accounts.record(0.0, 0.0)
    assert books.tallies.numbers(JOBS) == {("classify.tickets", end): 1}


@pytest.mark.parametrize("state", ["RETRY", "REJECTED"])
def test_what_goes_on_is_no_end(books: Books, state: str) -> None:
    books.accounts.job("classify.tickets", state, done())
    books.accounts.job("classify.tickets", "SUCCESS", done())
    books.accounts.record(0.0, 0.0)
    assert books.tallies.numbers(JOBS) == {("classify.tickets", "succeeded"): 1}


def test_items_labels_and_input_of_a_group_add_up_once(books: Books) -> None:
    books.accounts.job("classify.tickets", "SUCCESS", done(("ok", "ok"), ("billing", "refund"), tokens=9))
    books.accounts.job("classify.tickets", "SUCCESS", done(("ok", "null_text"), ("billing",), tokens=4))
    books.accounts.job("ocr.documents", "SUCCESS", done(("ok",), pixels=500))
    books.accounts.record(0.0, 0.25)
    books.accounts.record(0.0, 0.25)
    tallies = books.tallies
    assert tallies.numbers(ITEMS) == {
        ("classify.tickets", "ok"): 3,
        ("classify.tickets", "null_text"): 1,
        ("ocr.documents", "ok"): 1,
    }
    assert tallies.numbers(LABELS) == {("tiny", "billing"): 2, ("tiny", "refund"): 1}
    assert tallies.numbers(TOKENS) == {("classify.tickets",): 13}
    assert tallies.numbers(PIXELS) == {("ocr.documents",): 500}
    assert tallies.distributions(STAGE)["commit",].total == 0.5


def test_messages_without_a_model_are_as_fast_as_they_are_recorded(books: Books) -> None:
    for _ in range(100):
        job = done()
        books.meter.opened(job, 1)
        books.meter.settled(job.items)
        books.accounts.job("classify.tickets", "SUCCESS", job)
    books.accounts.record(2.0, 0.5)
    assert books.meter.rates.news() == {"classify": news(pytest.approx(50, rel=0.01), 100, 100)}


class InSlots:
    """Messages of a queue with two slots, each of which worked for 30 s."""

    def __init__(self, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = Engine({"echo": Lane(EchoModel(), BatchPolicy())}, Heard(), runners=RUNNERS)
        self.slot = Slot(engine, "a job", None, Charge("bulk", Band.BULK), suspect=False)
        monkeypatch.setattr(self.slot, "work_s", lambda: 30.0)
        self.books = books

    def end(self, runner_s: float, state: str = "SUCCESS") -> News:
        self.slot.runner_s = runner_s
        self.books.accounts.slot("bulk.shard", state, self.slot, 2)
        self.books.accounts.record(0.0, 0.0)
        return self.books.meter.rates.news().get("bulk", NO_NEWS)


@pytest.fixture
def in_slots(books: Books, monkeypatch: pytest.MonkeyPatch) -> InSlots:
    return InSlots(books, monkeypatch)


def test_a_slot_counts_by_the_work_of_its_thread_or_of_the_runners(in_slots: InSlots) -> None:
    assert in_slots.end(runner_s=20) == news(pytest.approx(1 / 15), 1, 1, band=Band.BULK)  # 30 s of one of two slots
    of_runners = pytest.approx(2 / 110, rel=0.1)  # 10 s and 100 s of the runners
    assert in_slots.end(runner_s=200) == news(of_runners, 1, 1, band=Band.BULK)


def test_the_time_of_a_retry_counts(in_slots: InSlots) -> None:
    assert in_slots.end(runner_s=20, state="RETRY") == NO_NEWS
    assert in_slots.end(runner_s=20) == news(pytest.approx(1 / 30, rel=0.05), 1, 1, band=Band.BULK)
