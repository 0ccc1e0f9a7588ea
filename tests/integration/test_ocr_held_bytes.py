"""A message that names many large documents of a store costs a worker the memory of a few of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode
from schemas.ocr import OcrResult
from tests import documents
from tests.s3_servers import BUCKET, S3Server
from worker.storage.s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from tests.services import WorkerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most that a process held"),
]

MIB = 1024 * 1024
DOCUMENT_BYTES = 40 * MIB
NAMED = 24
MOST_MIB = 420  # of 960 that the message names; what the client of the store holds beside each is in it
WAIT_S = 400


def most_held_mib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // 1024


def test_a_message_that_names_many_large_documents_holds_few_of_them(
    app: Celery,
    start_worker: Callable[..., WorkerProcess],
    ocr_model: Path,
    seaweed: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    store = S3Store()
    letter = documents.saved(documents.image(), "PNG")
    for name, beginning in {"small": letter, "good": letter, "damaged": letter[:2_000], "odd": b""}.items():
        filling = b"" if name == "small" else bytes(DOCUMENT_BYTES)  # behind its end a PNG may hold anything
        store.put_bytes(f"s3://{BUCKET}/scans/{name}", beginning + filling)
    worker = start_worker(
        queues="ocr",
        models_dir=ocr_model.parent,
        ocr_model=ocr_model.name,
        document_sources=f"s3://{BUCKET}/scans/",
        runners=2,
    )

    def read(*names: str) -> list[str | None]:
        asked = [{"id": str(number), "uri": f"s3://{BUCKET}/scans/{name}"} for number, name in enumerate(names)]
        sent = app.send_task("ocr.documents", kwargs={"documents": asked}, queue="ocr")
        results = OcrResult.model_validate(sent.get(timeout=WAIT_S)).results
        return [one.error.code if one.error else None for one in results]

    assert read("small", "small") == [None, None]
    warm_mib = most_held_mib(worker.process.pid)
    codes = read(*["good", "damaged", "odd", "good"] * (NAMED // 4))

    assert codes == [None, ErrorCode.DAMAGED_DOCUMENT, ErrorCode.UNSUPPORTED_FORMAT, None] * (NAMED // 4)
    held_mib = most_held_mib(worker.process.pid) - warm_mib
    assert held_mib < MOST_MIB
