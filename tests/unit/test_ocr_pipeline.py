"""Documents spawn pages that spawn lines; each document has one outcome, in the order of the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from schemas.errors import ErrorCode, MessageError
from schemas.ocr import OcrResult
from tasks.ocr.crops import Crop
from tasks.ocr.layout import Layout
from tasks.ocr.pipeline import OcrPipeline
from tasks.ocr.recognition import Reading
from tasks.ocr.stages import CROPS, DOCUMENTS, PAGES, Opened, PageOf, Request, lanes
from tests.echo import Heard
from worker.engine import Engine
from worker.errors import ItemFailed
from worker.jobs import Job
from worker.metering import RUNNERS, Meter
from worker.metrics import PADDED_UNITS, REAL_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.jobs import Cancellation

INFO: Final = {
    "name": "ocr-test",
    "version": "1",
    "sha256": "0" * 64,
    "precision": "fp32",
    "provider": "CPUExecutionProvider",
    "runtime": "onnxruntime 1",
}
DAMAGED: Final = ItemFailed(ErrorCode.DAMAGED_DOCUMENT, "cut off")


class Paper:
    """A document whose pages are lists of words; stands for bytes and a decoder."""

    def __init__(self, content: str) -> None:
        self.pages_of_words = [page.split() for page in content.split("/")]
        self.pages = len(self.pages_of_words)


class Stage:
    """A lane's model that does to each row what it is told to."""

    max_length = 3_200
    info = INFO

    def __init__(self, name: str, act: Any) -> None:  # noqa: ANN401 - any function of a row
        self.name = name
        self._act = act
        self.calls: list[int] = []

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        del cancellation
        self.calls.append(len(features))
        return [self._act(row) for row in features]

    def sample(self, batch_size: int, length: int) -> list[object]:
        raise NotImplementedError


def opened(request: Request) -> object:
    if request.uri is not None:
        return ItemFailed(ErrorCode.FORBIDDEN_URI, "not from there")
    paper: Any = Paper(request.content or "")
    last = paper.pages if request.last_page is None else request.last_page
    return Opened(paper, range(request.first_page - 1, last))


def laid_out(page: PageOf) -> object:
    paper: Any = page.document
    words = paper.pages_of_words[page.index]
    if "torn" in words:
        return DAMAGED
    boxes = tuple(corners(10.0 * index, 0.0 if index < 2 else 30.0) for index, _ in enumerate(words))
    pixels = [np.full((48, 10 * len(word), 3), ord(word[0]), np.uint8) for word in words]
    return Layout(0, 100, 60, boxes, tuple(Crop(each, line, 0, 0) for line, each in enumerate(pixels)))


def corners(left: float, top: float) -> Any:  # noqa: ANN401 - an array
    return np.array([[left, top], [left + 9, top], [left + 9, top + 20], [left, top + 20]], np.float32)


def said(crop: Crop) -> object:
    if chr(crop.pixels[0, 0, 0]) == "!":
        return ItemFailed(ErrorCode.INFERENCE_FAILED, "no")
    return Reading(f"{chr(crop.pixels[0, 0, 0])}{crop.pixels.shape[1] // 10}", 0.9)


class Desk:
    """An engine with the three lanes, over stages that read words."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.pipeline = OcrPipeline("ocr-test", INFO)
        self.crops: Any = Stage(CROPS, said)
        documents: Any = Stage(DOCUMENTS, opened)
        pages: Any = Stage(PAGES, laid_out)
        self.meter = Meter()
        self.engine = Engine(lanes(documents, pages, self.crops), self.heard, runners=1, meter=self.meter)
        self.engine.start()

    def read(self, *documents: dict[str, object], **fields: object) -> OcrResult:
        job = self.job = Job("job", self.pipeline, 0.0)
        self.engine.submit(job, (), {"documents": list(documents), **fields})
        self.heard.wait_for("finished", job)
        if job.error is not None:
            raise job.error
        return OcrResult.model_validate(self.pipeline.complete(job))


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
    assert desk.meter.rates.news() == {"": pytest.approx(2 / 10, rel=0.02)}  # two messages of 2.5 pages in 10 s


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


def test_only_the_pages_that_are_asked_for_are_read(desk: Desk) -> None:
    (document,) = desk.read({"id": "a", "content": "one/two/three", "first_page": 2, "last_page": 2}).results

    assert [(page.page, page.lines[0].text) for page in document.pages] == [(2, "t3")]


def test_lines_of_equal_width_share_a_batch_whichever_document_they_are_of(desk: Desk) -> None:
    found = desk.read(*({"id": str(number), "content": "abcd"} for number in range(6)))

    assert found.timings.lines == 6
    assert sum(desk.crops.calls) == 6
    assert found.timings.pages == 6


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
