"""What a commit has recorded, added up by task, model and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.echo import EchoModel, Heard
from tests.waiting import add_items, make_job
from worker.accounts import Accounts
from worker.engine import Engine
from worker.lanes import Lane
from worker.metrics import ITEMS, JOBS, LABELS, PIXELS, STAGE, TOKENS
from worker.planner import BatchPolicy
from worker.rates import ServiceRates
from worker.slots import Slot
from worker.tallies import Tallies

if TYPE_CHECKING:
    from worker.jobs import Job

RUNNERS = 2


class Books:
    """Accounts, and what they write into."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self.rates = ServiceRates()
        self.accounts = Accounts(self.tallies, self.rates, RUNNERS)


@pytest.fixture
def books() -> Books:
    return Books()


def done(runner_s: float = 0.0, outcomes: tuple[str, ...] = (), labels: tuple[str, ...] = (), **seen: int) -> Job:
    job = make_job("a job")
    add_items(job, [1] * max(len(outcomes), 1))
    for item in job.items:
        item.lane = "tiny"
    job.runner_s, job.outcomes, job.labels = runner_s, outcomes, labels
    job.tokens, job.pixels = seen.get("tokens", 0), seen.get("pixels", 0)
    return job


@pytest.mark.parametrize(
    ("state", "end"),
    [("SUCCESS", "succeeded"), ("FAILURE", "failed"), ("REVOKED", "cancelled"), ("IGNORED", "cancelled")],
)
def test_a_message_counts_by_its_end(books: Books, state: str, end: str) -> None:
    books.accounts.job("classify.tickets", "classify", state, done())
    books.accounts.record(0.0, 0.0)
    assert books.tallies.numbers(JOBS) == {("classify.tickets", end): 1}


@pytest.mark.parametrize("state", ["RETRY", "REJECTED"])
def test_what_goes_on_is_no_end_but_its_time_counts(books: Books, state: str) -> None:
    books.accounts.job("classify.tickets", "classify", state, done(runner_s=10))
    books.accounts.record(0.0, 0.0)
    books.accounts.job("classify.tickets", "classify", "SUCCESS", done(runner_s=10))
    books.accounts.record(0.0, 0.0)
    assert books.tallies.numbers(JOBS) == {("classify.tickets", "succeeded"): 1}
    assert books.rates.news() == pytest.approx({"classify": RUNNERS / 20}, rel=0.02)


def test_items_labels_and_input_of_a_group_add_up_once(books: Books) -> None:
    books.accounts.job(
        "classify.tickets", "classify", "SUCCESS", done(0, ("ok", "ok"), ("billing", "refund"), tokens=9)
    )
    books.accounts.job("classify.tickets", "classify", "SUCCESS", done(0, ("ok", "null_text"), ("billing",), tokens=4))
    books.accounts.job("ocr.documents", "ocr", "SUCCESS", done(0, ("ok",), pixels=500))
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


def test_the_rate_of_each_queue_is_that_of_its_own_messages(books: Books) -> None:
    for _ in range(50):
        books.accounts.job("classify.tickets", "classify", "SUCCESS", done(runner_s=0.1))
    books.accounts.job("ocr.documents", "ocr", "SUCCESS", done(runner_s=8))
    books.accounts.record(0.0, 0.0)
    assert books.rates.news() == pytest.approx({"classify": 20, "ocr": 0.25})


def test_messages_without_a_model_are_as_fast_as_they_are_recorded(books: Books) -> None:
    for _ in range(100):
        books.accounts.job("classify.tickets", "classify", "SUCCESS", done())
    books.accounts.record(2.0, 0.5)
    assert books.rates.news() == pytest.approx({"classify": 50})


def test_a_slot_counts_by_the_work_of_its_thread_or_of_the_runners(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine({"echo": Lane(EchoModel(), BatchPolicy())}, Heard(), runners=RUNNERS)
    slot = Slot(engine, "a job", None, suspect=False)
    monkeypatch.setattr(slot, "work_s", lambda: 30.0)
    slot.runner_s = 20.0
    books.accounts.slot("bulk.shard", "bulk", "SUCCESS", slot, 2)
    books.accounts.record(0.0, 0.0)
    assert books.rates.news() == pytest.approx({"bulk": 1 / 15})  # 30 s of one of two slots

    slot.runner_s = 200.0
    books.accounts.slot("bulk.shard", "bulk", "SUCCESS", slot, 2)
    books.accounts.record(0.0, 0.0)
    assert books.rates.news() == pytest.approx({"bulk": 2 / 110}, rel=0.1)  # 10 s and 100 s of the runners
