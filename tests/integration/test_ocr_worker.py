"""A stock Celery producer has documents read by a real worker with a real model, and passes the text on."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain

from schemas.errors import ErrorCode
from schemas.ocr import DocumentResult, OcrResult
from schemas.results import ClassifyResult
from tasks.ocr.reader import PageReader
from tests import documents, pdf_files
from tests.s3_servers import BUCKET, S3Server
from tests.services import wait_until
from tests.tiny_models import LABELS
from worker import keys
from worker.storage.s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import redis
    from celery import Celery

    from tests.services import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S = 120
ALLOWED = f"s3://{BUCKET}/scans"
WORDS = {"Rechnung", "4711", "Übergrößen", "Weißenburger", "Nürnberg", "1.234,56", "€"}
TRACES = ("Rechnung", "enburger", "rnberg")  # parts of words that no escape changes
PNG = documents.saved(documents.image(), "PNG")


@pytest.fixture(scope="module")
def worker(start_worker: Callable[..., WorkerProcess], ocr_model: Path, seaweed: S3Server) -> Iterator[WorkerProcess]:
    """One worker for tickets and documents, at its most talkative; it may read below one prefix."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in seaweed.environment().items():
            patched.setenv(name, value)
        yield start_worker(
            queues="classify,ocr",
            models_dir=ocr_model.parent,
            ocr_model=ocr_model.name,
            document_sources=f"{ALLOWED}/",
            log_level="debug",
            runners=2,
        )


def inline(name: str, content: bytes) -> dict[str, str]:
    return {"id": name, "content": base64.b64encode(content).decode()}


def read(app: Celery, *asked: dict[str, Any]) -> list[DocumentResult]:
    sent = app.send_task("ocr.documents", kwargs={"documents": asked}, queue="ocr")
    return OcrResult.model_validate(sent.get(timeout=WAIT_S)).results


def codes(results: Sequence[DocumentResult]) -> list[str | None]:
    return [one.error and one.error.code for one in results]


@pytest.mark.usefixtures("worker")
def test_documents_of_all_kinds_are_read_in_order_beside_one_that_is_damaged(app: Celery) -> None:
    picture = documents.image()
    kinds = {
        "png": PNG,
        "jpeg": documents.saved(picture, "JPEG", quality=90),
        "damaged": PNG[:2_000],
        "tiff": documents.three_pages(),
        "webp": documents.saved(picture, "WEBP", lossless=True),
        "nothing": b"",
        "bmp": documents.saved(picture, "BMP"),
        "gif": documents.saved(picture, "GIF"),
        "pdf": pdf_files.scans([picture, picture]),
    }
    results = read(app, *(inline(name, content) for name, content in kinds.items()))

    assert [one.id for one in results] == list(kinds)
    found = dict(zip(kinds, results, strict=True))
    assert [one.error.code for one in (found.pop("damaged"), found.pop("nothing")) if one.error] == [
        ErrorCode.DAMAGED_DOCUMENT,
        ErrorCode.EMPTY_DOCUMENT,
    ]
    assert codes(list(found.values())) == [None] * len(found)
    assert {name: len(one.pages) for name, one in found.items() if len(one.pages) > 1} == {"tiff": 3, "pdf": 2}
    for name, one in found.items():
        for page in one.text.split("\f"):
            assert set(page.split()) >= WORDS, name


def test_a_document_is_read_from_an_allowed_place_and_from_nowhere_else(
    app: Celery, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, seaweed: S3Server
) -> None:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    store = S3Store()
    store.put_bytes(f"{ALLOWED}/letter.png", PNG)
    store.put_bytes(f"s3://{BUCKET}/secret/letter.png", PNG)

    results = read(
        app,
        {"id": "allowed", "uri": f"{ALLOWED}/letter.png"},
        {"id": "forbidden", "uri": f"s3://{BUCKET}/secret/letter.png"},
        {"id": "climbing", "uri": f"{ALLOWED}/../secret/letter.png"},
        {"id": "missing", "uri": f"{ALLOWED}/nothing.png"},
        {"id": "neither"},
    )
    assert codes(results) == [
        None,
        ErrorCode.FORBIDDEN_URI,
        ErrorCode.FORBIDDEN_URI,
        ErrorCode.OBJECT_NOT_FOUND,
        ErrorCode.MISSING_DOCUMENT,
    ]
    assert set(results[0].text.split()) >= WORDS
    assert worker.process.poll() is None


@pytest.mark.usefixtures("worker")
def test_only_the_pages_that_are_asked_for_are_read(app: Celery) -> None:
    tiff = inline("tiff", documents.three_pages())
    (two,) = read(app, tiff | {"first_page": 2})
    (beyond,) = read(app, tiff | {"last_page": 4})
    assert [page.page for page in two.pages] == [2, 3]
    assert codes([beyond]) == [ErrorCode.NO_SUCH_PAGE]


@pytest.mark.usefixtures("worker")
def test_a_chain_labels_what_was_read_and_keeps_the_errors_of_what_was_not(app: Celery) -> None:
    asked = [inline("letter", PNG), inline("damaged", PNG[:2_000]), inline("fax", documents.fax())]
    reading = app.signature("ocr.documents", kwargs={"documents": asked}, queue="ocr")
    labelling = app.signature("classify.tickets", kwargs={"top_k": 2}, queue="classify")

    result = ClassifyResult.model_validate(chain(reading, labelling).apply_async().get(timeout=WAIT_S))

    letter, damaged, fax = result.results
    assert [one.id for one in result.results] == ["letter", "damaged", "fax"]
    assert letter.label in LABELS
    assert fax.label in LABELS
    assert damaged.label is None
    assert damaged.error is not None
    assert damaged.error.code is ErrorCode.DAMAGED_DOCUMENT


@pytest.mark.usefixtures("worker")
def test_a_document_reads_the_same_alone_in_company_and_in_another_order(app: Celery) -> None:
    picture = documents.image()
    asked = [
        inline("letter", PNG),
        inline("half", documents.saved(picture.resize((documents.WIDTH // 2, documents.HEIGHT // 2)), "PNG")),
        inline("narrow", documents.saved(picture.crop((0, 0, 300, documents.HEIGHT)), "PNG")),
        inline("turned", documents.saved(picture.rotate(180), "PNG")),
    ]
    alone = {one["id"]: read(app, one)[0] for one in asked}
    together = {one.id: one for one in read(app, *asked)}
    reversed_ = {one.id: one for one in read(app, *asked[::-1])}

    assert together == alone
    assert reversed_ == alone
    assert all(one.text for one in alone.values())


@pytest.mark.usefixtures("worker")
def test_a_worker_tells_how_many_pages_it_reads_a_second_not_how_many_documents_it_opens(
    app: Celery, client: redis.Redis
) -> None:
    client.delete(keys.RATES)
    read(app, *(inline(f"letter-{number}", PNG) for number in range(4)))
    wait_until(lambda: client.hlen(keys.RATES) == 1, WAIT_S, "it tells")

    (pages_per_s,) = map(float, client.hvals(keys.RATES))
    assert 0 < pages_per_s < 20


@pytest.mark.usefixtures("worker")
def test_a_worker_reads_what_the_same_model_reads_without_one(app: Celery, ocr_model: Path) -> None:
    (letter,) = read(app, inline("letter", PNG))
    page = PageReader(ocr_model).read(documents.picture())
    assert letter.text == page.text
    assert [line.text for line in letter.pages[0].lines] == [line.text for line in page.lines]


def test_no_log_line_holds_a_document_or_its_text(app: Celery, worker: WorkerProcess) -> None:
    asked = [
        inline("letter", PNG),
        {"id": "far", "uri": "s3://elsewhere/hiddenname.png"},
        inline("odd", b"odd Weissenburger"),
    ]
    (letter, *_) = read(app, *asked)
    assert all(trace in letter.text for trace in TRACES)
    failed = app.send_task("ocr.documents", kwargs={"documents": [inline("a", PNG)], "note": "Nürnberg"}, queue="ocr")
    assert "unknown_field" in str(failed.get(timeout=WAIT_S, propagate=False))

    log = worker.lines
    assert "ocr.documents" in log
    for kept_back in (*TRACES, asked[0]["content"][:60], "hiddenname"):
        assert kept_back not in log
