"""Documents that are words, and an engine that reads them: the stages of reading without a file, a pixel or a network.

A document is text; `/` parts its pages, a space its lines. A page with the word `torn` is damaged, a line that begins
with `!` cannot be read, and every other line says its first letter and its length.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from schemas.errors import ErrorCode
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
from worker.metering import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
UNAVAILABLE: Final = ItemFailed(ErrorCode.STORE_UNAVAILABLE, "no good answer")


class Paper:
    """A document whose pages are lists of words; stands for bytes and a decoder."""

    def __init__(self, content: str, data: bytes | None = None) -> None:
        self.data = content.encode() if data is None else data
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
        return UNAVAILABLE if "away" in request.uri else ItemFailed(ErrorCode.FORBIDDEN_URI, "not from there")
    content = Path(request.pinned.uri).read_text() if request.pinned else (request.data or b"").decode()
    paper: Any = Paper(request.content or content)
    last = paper.pages if request.last_page is None else request.last_page
    last = min(last, paper.pages) if request.is_clipped else last
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

    def __init__(self, open_document: Callable[[Request], object] = opened) -> None:
        self.heard = Heard()
        self.pipeline = OcrPipeline("ocr-test", INFO)
        self.crops: Any = Stage(CROPS, said)
        documents: Any = Stage(DOCUMENTS, open_document)
        pages: Any = Stage(PAGES, laid_out)
        self.meter = Meter()
        self.engine = Engine(lanes(documents, pages, self.crops), self.heard, runners=1, meter=self.meter)
        self.engine.start()

    def read(self, *documents: dict[str, object], **fields: object) -> OcrResult:
        return self.answer(self.finished(*documents, **fields))

    def finished(self, *documents: dict[str, object], **fields: object) -> Job:
        job = self.job = Job("job", self.pipeline, 0.0)
        self.engine.submit(job, (), {"documents": list(documents), **fields})
        self.heard.wait_for("finished", job)
        return job

    def answer(self, job: Job) -> OcrResult:
        if job.error is not None:
            raise job.error
        return OcrResult.model_validate(self.pipeline.complete(job))
