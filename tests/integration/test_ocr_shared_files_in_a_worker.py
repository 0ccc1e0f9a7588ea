"""A real worker gives every file of the shared set its text or its error, in whatever company it comes, and lives."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest

from schemas.ocr import DocumentResult, OcrResult
from tests.holding import Watch
from tests.s3_servers import BUCKET, S3Server
from tests.shared_scans import ERRORS, FILES, FOLDER, MISSING, PAGES, known_texts
from worker.storage.s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from celery import Celery

    from tests.services import WorkerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not FILES, reason=MISSING),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds"),
]

WAIT_S = 900
MOST_BYTES = 3 * 2**29  # 1.5 GiB, of a worker with one runner and the processes that decode for it
SHUFFLED = random.Random(35_000).sample(FILES, len(FILES))  # noqa: S311 - to be repeated, not to be secret


@pytest.fixture(scope="module")
def worker(start_worker: Callable[..., WorkerProcess], ocr_model: Path, seaweed: S3Server) -> Iterator[WorkerProcess]:
    """One worker with the profile `accurate`, that may read where the files lie."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in seaweed.environment().items():
            patched.setenv(name, value)
        store = S3Store()
        for name in FILES:
            store.put_bytes(f"s3://{BUCKET}/scans/{name}", (FOLDER / name).read_bytes())
        yield start_worker(
            queues="ocr",
            models_dir=ocr_model.parent,
            ocr_model=ocr_model.name,
            document_sources=f"s3://{BUCKET}/scans/",
            runners=1,
        )


def read(app: Celery, *messages: Sequence[str]) -> dict[str, DocumentResult]:
    """Send messages that name these files, and wait for all of their results."""
    asked = [[{"id": name, "uri": f"s3://{BUCKET}/scans/{name}"} for name in names] for names in messages]
    sent = [app.send_task("ocr.documents", kwargs={"documents": one}, queue="ocr") for one in asked]
    results = [OcrResult.model_validate(one.get(timeout=WAIT_S)).results for one in sent]
    assert [[one.id for one in message] for message in results] == [list(names) for names in messages]
    return {one.id: one for message in results for one in message}


def said(result: DocumentResult) -> list[list[str]]:
    """The lines of each page."""
    return [[line.text for line in page.lines] for page in result.pages]


def test_every_file_gives_its_text_or_its_error_in_any_company_within_the_memory_of_a_worker(
    app: Celery, worker: WorkerProcess
) -> None:
    with Watch(worker.process.pid) as watch:
        alone = read(app, *([name] for name in FILES))
        together = read(app, SHUFFLED)

    assert worker.process.poll() is None
    assert {name: one.error.code for name, one in alone.items() if one.error} == ERRORS
    assert {name: len(one.pages) for name, one in alone.items() if len(one.pages) > 1} == PAGES
    texts = known_texts()
    assert {name: bool(alone[name].text.strip()) for name in texts} == {
        name: bool(text.strip()) for name, text in texts.items()
    }
    assert [name for name in FILES if said(together[name]) != said(alone[name])] == []
    assert watch.most_bytes < MOST_BYTES, watch.parts
