"""The preparer opens messages and prepares their items in portions that are fair and not too far ahead."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode, MessageError
from tests.echo import EchoPipeline, message, outcomes
from tests.services import wait_until
from worker.errors import ItemFailed
from worker.jobs import Hold
from worker.preparing import ARRIVALS_PER_STEP, PORTION, PORTION_PER_JOB, Arrival, Preparer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.jobs import Item, Job

LOOKAHEAD = 100


class Sink:
    """Implements `worker.preparing.Sink`: keeps what comes."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.jobs: list[Job] = []
        self.errors: dict[Job, BaseException] = {}
        self.prepared_together: list[list[Job]] = []
        self.in_preparation: list[Job] = []
        self.opened_in_preparation: list[bool] = []

    @contextmanager
    def preparing(self, jobs: Sequence[Job]) -> Iterator[None]:
        self.prepared_together.append(list(jobs))
        self.in_preparation = list(jobs)
        yield
        self.in_preparation = []

    def prepared(self, items: Sequence[Item]) -> None:
        self.items.extend(items)

    def opened(self, job: Job) -> None:
        self.jobs.append(job)
        self.opened_in_preparation.append(job in self.in_preparation)

    def failed(self, job: Job, error: BaseException) -> None:
        self.errors[job] = error

    def count(self, job: Job) -> int:
        """Items of `job` that have come."""
        return sum(item.job is job for item in self.items)


class HoldingPipeline(EchoPipeline):
    """Each text is a number: the bytes that its item holds; a job may hold 100."""

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        super().open(job, args, kwargs)
        job.allowance_bytes = 100
        for item in job.items:
            item.hold = Hold(int(str(item.source)))


def let_go(preparing: Preparing, *items: Item) -> None:
    """Say that these items, and what they gave rise to, have run."""
    for item in items:
        assert item.hold is not None
        item.hold.items = 0
    preparing.preparer.settled({items[0].job: 0})


class Preparing:
    """A preparer that the test steps by hand."""

    def __init__(self, lookahead: int = LOOKAHEAD) -> None:
        self.sink = Sink()
        self.preparer = Preparer(self.sink, lookahead)
        self.pipeline = EchoPipeline()

    def submit(self, texts: object, pipeline: EchoPipeline | None = None) -> Job:
        job = message(pipeline or self.pipeline)
        self.preparer.submit(Arrival(job, (), {"texts": texts}))
        return job

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.preparer.step()


@pytest.fixture
def preparing() -> Preparing:
    return Preparing()


def test_every_item_of_a_message_is_prepared_once_and_in_order(preparing: Preparing) -> None:
    job = preparing.submit([str(number) for number in range(90)])
    preparing.step(3)

    assert preparing.sink.items == job.items
    assert preparing.sink.jobs == [job]
    assert job.pending == 90


def test_many_messages_are_tokenised_in_one_call(preparing: Preparing) -> None:
    for number in range(50):
        preparing.submit([str(number)])
    preparing.step()

    assert [len(portion) for portion in preparing.pipeline.portions] == [50]


def test_a_message_of_ten_thousand_delays_a_single_ticket_by_no_portion(preparing: Preparing) -> None:
    big = preparing.submit(["x"] * 10_000)
    single = preparing.submit(["y"])
    preparing.step()

    assert preparing.sink.count(single) == 1
    assert preparing.sink.count(big) == PORTION_PER_JOB


def test_a_single_ticket_waits_one_round_of_the_big_messages_before_it() -> None:
    preparing = Preparing(lookahead=10_000)
    portions_a_round = 3
    for _ in range(portions_a_round * PORTION // PORTION_PER_JOB):
        preparing.submit(["x"] * 1_000)
    preparing.step()
    single = preparing.submit(["y"])
    preparing.step(portions_a_round + 1)

    assert preparing.sink.count(single) == 1


def test_a_portion_has_its_limit_and_goes_round_the_messages() -> None:
    preparing = Preparing(lookahead=10_000)
    jobs = [preparing.submit(["x"] * 1_000) for _ in range(8)]
    preparing.step(2)

    assert [len(portion) for portion in preparing.pipeline.portions] == [PORTION, PORTION]
    assert [preparing.sink.count(job) for job in jobs] == [PORTION_PER_JOB] * 8


def test_a_message_is_prepared_no_further_ahead_than_its_items_get_their_outcome(preparing: Preparing) -> None:
    big = preparing.submit(["x"] * 10_000)
    preparing.step(100)
    ahead = preparing.sink.count(big)
    preparing.preparer.settled({big: ahead})
    preparing.step(100)

    assert LOOKAHEAD <= ahead < LOOKAHEAD + PORTION_PER_JOB
    assert preparing.sink.count(big) == 2 * ahead


def test_a_message_is_prepared_as_far_as_its_allowance_goes_and_further_once_something_is_let_go(
    preparing: Preparing,
) -> None:
    job = preparing.submit(["40"] * 10, HoldingPipeline())
    preparing.step(5)
    assert preparing.sink.items == job.items[:2]

    let_go(preparing, job.items[0])
    preparing.step(5)
    assert preparing.sink.items == job.items[:3]

    let_go(preparing, *job.items[1:3])
    preparing.step(5)
    assert preparing.sink.items == job.items[:5]


def test_what_an_item_turns_out_not_to_need_is_there_for_the_next(preparing: Preparing) -> None:
    job = preparing.submit(["90"] * 3, HoldingPipeline())
    preparing.step(5)
    assert preparing.sink.items == job.items[:1]

    assert job.items[0].hold is not None
    job.items[0].hold.bytes = 10
    preparing.preparer.settled({job: 0})
    preparing.step(5)
    assert preparing.sink.items == job.items[:2]


def test_an_item_beyond_the_allowance_is_prepared_when_nothing_else_is_held(preparing: Preparing) -> None:
    job = preparing.submit(["10", "500", "10"], HoldingPipeline())
    for ready in (1, 2, 3):
        preparing.step(5)
        assert preparing.sink.items == job.items[:ready]
        let_go(preparing, job.items[ready - 1])


def test_a_message_that_holds_all_it_may_does_not_hold_up_others(preparing: Preparing) -> None:
    preparing.submit(["100"] * 10, HoldingPipeline())
    other = preparing.submit(["100"] * 2, HoldingPipeline())
    preparing.step(5)

    assert preparing.sink.count(other) == 1
    assert len(preparing.sink.items) == 2


def test_a_step_opens_only_so_many_messages_that_the_first_are_not_kept_waiting(preparing: Preparing) -> None:
    for _ in range(3 * ARRIVALS_PER_STEP):
        preparing.submit(["x"])
    preparing.step()

    assert len(preparing.sink.items) == ARRIVALS_PER_STEP


@pytest.mark.parametrize(
    ("texts", "code"),
    [("no list", ErrorCode.INVALID_MESSAGE), (["unopenable"], ErrorCode.INTERNAL)],
    ids=["wrong", "panic"],
)
def test_a_message_that_cannot_be_opened_fails_alone(preparing: Preparing, texts: object, code: ErrorCode) -> None:
    wrong, right = preparing.submit(texts), preparing.submit(["x"])
    preparing.step()

    error = preparing.sink.errors[wrong]
    assert isinstance(error, MessageError)
    assert error.code is code
    assert preparing.sink.items == right.items


def test_a_text_that_the_tokenizer_panics_on_fails_alone(preparing: Preparing) -> None:
    jobs = [preparing.submit([text]) for text in ("a", "untokenisable", "b", "c")]
    preparing.step()

    assert [isinstance(job.items[0].outcome, ItemFailed) for job in jobs] == [False, True, False, False]
    assert len(preparing.sink.items) == 4


def test_an_unreadable_item_has_its_outcome_and_its_neighbours_have_features(preparing: Preparing) -> None:
    job = preparing.submit(["a", "unreadable", "b"])
    preparing.step()

    assert outcomes(job) == [None, "not_text", None]
    assert [item.features for item in job.items if item.outcome is None] == ["a", "b"]


def test_each_pipeline_prepares_its_own_items(preparing: Preparing) -> None:
    other = EchoPipeline()
    preparing.submit(["a"])
    preparing.submit(["b"], other)
    preparing.step()

    assert (preparing.pipeline.portions, other.portions) == ([["a"]], [["b"]])


def test_a_forgotten_message_is_prepared_no_further(preparing: Preparing) -> None:
    big = preparing.submit(["x"] * 10_000)
    preparing.step()
    preparing.preparer.forget(big)
    preparing.preparer.settled({big: PORTION_PER_JOB})
    preparing.step(5)

    assert preparing.sink.count(big) == PORTION_PER_JOB


def test_a_message_without_items_is_opened_and_that_is_all(preparing: Preparing) -> None:
    job = preparing.submit([])
    preparing.step(2)

    assert preparing.sink.jobs == [job]
    assert preparing.sink.items == []


def test_closing_ends_the_thread_whether_it_works_or_waits(preparing: Preparing) -> None:
    thread = threading.Thread(target=preparing.preparer.run)
    thread.start()
    preparing.submit(["x"] * 10_000)
    preparing.preparer.close()
    thread.join(10)

    assert not thread.is_alive()


def test_a_suspect_is_prepared_with_nothing_else(preparing: Preparing) -> None:
    before, suspect, after = (preparing.submit([text]) for text in ("before", "suspect", "after"))
    suspect.suspect = True
    preparing.step(3)

    assert preparing.sink.prepared_together == [[before], [suspect], [after]]


def test_a_message_is_announced_before_it_is_opened_for_it_may_end_the_worker_there(preparing: Preparing) -> None:
    for number in range(3):
        preparing.submit([str(number)])
    preparing.step()

    assert preparing.sink.opened_in_preparation == [True] * 3


def test_an_arrival_wakes_an_idle_preparer(preparing: Preparing) -> None:
    thread = threading.Thread(target=preparing.preparer.run)
    thread.start()
    for number in range(200):
        job = preparing.submit([str(number)])
        wait_until(lambda wanted=job: preparing.sink.count(wanted) == 1)  # idle again, or about to be
    preparing.preparer.close()
    thread.join(10)
