"""A real worker gives every file of the shared set its text or its error, in whatever company it comes, and lives.

With the profile `tiny`; `FAULTS=full`, as `make faults` has it, takes `accurate`, which needs the most memory. What the
largest files need of that is always seen.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest

from schemas.ocr import DocumentResult, OcrResult
from tests.faults.trial import FORM, Form
from tests.holding import Watch
from tests.ocr_models import built_ocr_model
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
PROFILE = "tiny" if FORM is Form.SHORT else "accurate"
# Of a worker with one runner and the processes that decode for it.
MOST_BYTES = {"tiny": 2**30, "accurate": 3 * 2**29}
LARGEST = ("de_fax_g4_204x98.tif", "x_hugemono_35000.pdf", "de_huge_140mp.png")  # by the memory that each takes
SHUFFLED = random.Random(35_000).sample(FILES, len(FILES))  # noqa: S311 - to be repeated, not to be secret


@pytest.fixture(scope="module")
def start_reader(
    start_worker: Callable[..., WorkerProcess], ocr_cache: Path, seaweed: S3Server
) -> Iterator[Callable[[str], WorkerProcess]]:
    """Start a worker with a profile, that may read where the files lie."""

    def start(profile: str) -> WorkerProcess:
        model = built_ocr_model(ocr_cache, profile)
        return start_worker(
            queues="ocr",
            models_dir=model.parent,
            ocr_model=model.name,
            document_sources=f"s3://{BUCKET}/scans/",
            runners=1,
        )

    with pytest.MonkeyPatch.context() as patched:
        for name, value in seaweed.environment().items():
            patched.setenv(name, value)
        store = S3Store()
        for name in FILES:
            store.put_bytes(f"s3://{BUCKET}/scans/{name}", (FOLDER / name).read_bytes())
        yield start


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
    app: Celery, start_reader: Callable[[str], WorkerProcess]
) -> None:
    worker = start_reader(PROFILE)
    with Watch(worker.process.pid) as watch:
        alone = read(app, *([name] for name in FILES))
        together = read(app, SHUFFLED)

    assert worker.stop() == 0
    assert {name: one.error.code for name, one in alone.items() if one.error} == ERRORS
    assert {name: len(one.pages) for name, one in alone.items() if len(one.pages) > 1} == PAGES
    texts = known_texts()
    assert {name: bool(alone[name].text.strip()) for name in texts} == {
        name: bool(text.strip()) for name, text in texts.items()
    }
    assert [name for name in FILES if said(together[name]) != said(alone[name])] == []
    assert watch.most_bytes < MOST_BYTES[PROFILE], watch.parts


def test_the_largest_files_leave_a_worker_with_the_largest_profile_within_its_memory(
    app: Celery, start_reader: Callable[[str], WorkerProcess]
) -> None:
    worker = start_reader("accurate")
    with Watch(worker.process.pid) as watch:
        together = read(app, LARGEST)

    assert worker.stop() == 0
    assert [name for name, one in together.items() if one.error] == []
    assert watch.most_bytes < MOST_BYTES["accurate"], watch.parts
