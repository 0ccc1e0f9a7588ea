"""Documents spawn pages that spawn lines; each document has one outcome, in the order of the message."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import pytest

from schemas.errors import ErrorCode, MessageError
from tasks.ocr.limits import MIB
from tasks.ocr.pipeline import AHEAD_BYTES, OcrPipeline
from tasks.ocr.stages import CROPS, Opened, Request
from tests.papers import DAMAGED, INFO, Desk, Paper
from tests.telling import news
from worker.jobs import Job
from worker.metering import RUNNERS
from worker.metrics import PADDED_UNITS, REAL_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.ocr.layout import Layout
    from tasks.ocr.pipeline import DocumentNode


class Store:
    """Opens documents of 40 MiB and two pages, and knows how many of them anybody still has."""

    def __init__(self) -> None:
        self.most = 0
        self._papers: WeakSet[Paper] = WeakSet()
        self._lock = threading.Lock()

    def opened(self, request: Request) -> object:
        if request.uri == "s3://scans/torn":
            return DAMAGED
        paper: Any = Paper("one/two", bytes(40 * MIB))
        with self._lock:
            self._papers.add(paper)
            self.most = max(self.most, len(self._papers))
        return Opened(paper, range(2))

    def held(self) -> int:
        return len(self._papers)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.engine.stop(1.0)


def test_pages_and_lines_come_in_order(desk: Desk) -> None:
    (document,) = desk.read({"id": "a", "content": "one two three/four"}).results

    assert [page.page for page in document.pages] == [1, 2]
    assert document.text == "o3 t3\nt5\ff4"
    assert [line.text for line in document.pages[0].lines] == ["o3", "t3", "t5"]
    assert document.pages[0].lines[1].box == [[10.0, 0.0], [19.0, 0.0], [19.0, 20.0], [10.0, 20.0]]


def test_each_document_has_its_own_outcome_in_the_order_of_the_message(desk: Desk) -> None:
    found = desk.read(
        {"id": "far", "uri": "s3://elsewhere/a"},
        {"id": "good", "content": "fine"},
        {"id": "none"},
        {"id": "null", "content": None},
        {"id": "torn", "content": "torn"},
    ).results

    assert [(one.id, one.error.code if one.error else None, one.text) for one in found] == [
        ("far", ErrorCode.FORBIDDEN_URI, ""),
        ("good", None, "f4"),
        ("none", ErrorCode.MISSING_DOCUMENT, ""),
        ("null", ErrorCode.MISSING_DOCUMENT, ""),
        ("torn", ErrorCode.DAMAGED_DOCUMENT, ""),
    ]


def test_documents_and_pixels_are_counted_for_the_metrics(desk: Desk) -> None:
    desk.read(
        {"id": "far", "uri": "s3://elsewhere/a"},
        {"id": "good", "content": "one two/three"},
        {"id": "half", "content": "fine/torn"},
        {"id": "torn", "content": "torn"},
    )
    assert list(desk.job.outcomes) == ["forbidden_uri", "ok", "ok", "damaged_document"]
    assert (desk.job.pixels, desk.job.tokens, desk.job.labels) == (3 * 100 * 60, 0, ())


def test_autoscaling_counts_a_message_by_its_pages(desk: Desk) -> None:
    desk.read({"id": "far", "uri": "s3://elsewhere/a"}, {"id": "good", "content": "one two/three/four five/torn"})
    desk.read({"id": "good", "content": "one two"})
    desk.meter.rates.done("", 0, {RUNNERS: 10.0})
    assert desk.meter.rates.news() == {"": news(pytest.approx(5 / 10, rel=0.03), 2, 5)}


def test_what_a_line_is_padded_by_itself_is_no_real_input(desk: Desk) -> None:
    desk.read({"id": "a", "content": "one three"})
    units = (desk.engine.tallies.numbers(metric)[CROPS,] for metric in (REAL_UNITS, PADDED_UNITS))
    assert tuple(units) == (30 + 50, 32 + 64)


def test_a_page_that_cannot_be_read_is_its_own_error_and_so_is_one_that_lacks_a_line(desk: Desk) -> None:
    (document,) = desk.read({"id": "a", "content": "one/torn/two !/three"}).results

    assert [page.error.code if page.error else None for page in document.pages] == [
        None,
        ErrorCode.DAMAGED_DOCUMENT,
        ErrorCode.INFERENCE_FAILED,
        None,
    ]
    assert document.text == "o3\f\f\ft5"
    assert document.error is None


def test_a_blank_page_has_no_lines_and_no_error(desk: Desk) -> None:
    (document,) = desk.read({"id": "a", "content": ""}).results

    assert (document.error, document.text, document.pages[0].lines) == (None, "", [])


def test_a_document_does_not_hold_the_pixels_of_pages_that_have_been_read(desk: Desk) -> None:
    job = Job("job", desk.pipeline, 0.0)
    desk.engine.submit(job, (), {"documents": [{"id": "a", "content": "one two/three"}]})
    desk.heard.wait_for("finished", job)

    opening: Any = job.items[0].source
    assert [page.outcome.crops for page in opening.pages] == [(), ()]
    assert [crop.features for page in opening.pages for crop in page.source.crops] == [None] * 3
    assert desk.pipeline.complete(job)["results"][0]["text"] == "o3 t3\ft5"  # type: ignore[index] # JSON


def test_only_the_pages_that_are_asked_for_are_read(desk: Desk) -> None:
    (document,) = desk.read({"id": "a", "content": "one/two/three", "first_page": 2, "last_page": 2}).results

    assert [(page.page, page.lines[0].text) for page in document.pages] == [(2, "t3")]


def test_lines_of_equal_width_share_a_batch_whichever_document_they_are_of(desk: Desk) -> None:
    found = desk.read(*({"id": str(number), "content": "abcd"} for number in range(6)))

    assert found.timings.lines == 6
    assert sum(desk.crops.calls) == 6
    assert found.timings.pages == 6


def test_a_message_holds_few_documents_at_a_time_and_none_after_its_last_page_however_many_it_names() -> None:
    store = Store()
    desk = Desk(store.opened)
    names = [f"s3://scans/{'torn' if number % 5 == 0 else number}" for number in range(60)]
    job = desk.finished(*({"id": str(number), "uri": name} for number, name in enumerate(names)))
    desk.engine.stop(1.0)

    assert [len(one.pages) for one in desk.answer(job).results] == [0, 2, 2, 2, 2] * 12
    assert 1 < store.most <= AHEAD_BYTES // (40 * MIB)
    assert store.held() == 0


def test_what_is_kept_of_a_page_until_its_message_ends_has_no_pixels(desk: Desk) -> None:
    job = desk.finished({"id": "a", "content": "one two/three"})
    (document,) = job.items

    assert len(desk.answer(job).results[0].pages) == 2
    pages = [page.outcome for page in cast("DocumentNode", document.source).pages]
    assert [page.crops for page in cast("list[Layout]", pages)] == [(), ()]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param({"documents": []}, "no_documents: ", id="none"),
        pytest.param({"documents": [{"id": "a", "content": "x"}] * 2}, "duplicate_id: ", id="twice"),
        pytest.param({"documents": [{"id": "a", "content": "x", "uri": "y"}]}, "invalid_message: ", id="two sources"),
        pytest.param({"documents": [{"id": "a", "contents": "x"}]}, "unknown_field: ", id="misspelt"),
        pytest.param({"documents": [{"id": "a", "content": "x", "first_page": 0}]}, "invalid_message: ", id="page 0"),
        pytest.param(
            {"documents": [{"id": "a", "content": "x", "first_page": 3, "last_page": 2}]},
            "invalid_message: ",
            id="no page",
        ),
        pytest.param({"documents": [{"id": "a", "content": "x"}], "model": "other"}, "unknown_model: ", id="model"),
    ],
)
def test_a_message_that_is_wrong_as_a_whole_is_refused(message: dict[str, Any], expected: str) -> None:
    with pytest.raises(MessageError, match=f"^{expected}"):
        OcrPipeline("ocr-test", INFO).open(Job("job", OcrPipeline("ocr-test", INFO), 0.0), (), message)
