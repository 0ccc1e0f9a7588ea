"""A worker of the queue `ocr` alone and its producer do with what docs/redis.md says, less all that is for others."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
import redis

from schemas.backpressure import guard
from schemas.errors import ErrorCode
from tests import documents
from tests.rights import denied, guarded_server, url_of, users
from tests.services import WorkerProcess, producer, wait_until
from worker import keys

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S = 120
OF_OTHERS = {"~classify*", "~bulk*", "~batchmill:unacked:classify"}
OF_BULK_RUNS = {"+mget", "+zmscore", "+zrevrange"}


def rules() -> dict[str, list[str]]:
    """The rules of the page without other queues, the worker's without bulk runs."""
    without = {"batchmill-worker": OF_OTHERS | OF_BULK_RUNS}
    return {name: [one for one in of if one not in without.get(name, OF_OTHERS)] for name, of in users().items()}


def read(app: Celery, *contents: bytes) -> list[ErrorCode | None]:
    asked = [{"id": str(n), "content": base64.b64encode(content).decode()} for n, content in enumerate(contents)]
    guard(app, "ocr", max_messages=10, max_bytes=1 << 30)
    sent = app.send_task("ocr.documents", kwargs={"documents": asked}, queue="ocr")
    return [one.get("error") and one["error"]["code"] for one in sent.get(timeout=WAIT_S)["results"]]


def test_documents_are_read_with_the_rights_for_one_queue(ocr_model: Path, tiny_model: Path, tmp_path: Path) -> None:
    options = {"queues": "ocr", "models_dir": ocr_model.parent, "ocr_model": ocr_model.name, "lease_s": 3}
    assert {"~ocr*", "~batchmill:unacked:ocr"} <= set(rules()["batchmill-producer"])
    with (
        guarded_server(rules()) as server,
        producer(url_of(server, "producer")) as app,
        redis.Redis(port=server.port, decode_responses=True) as admin,
    ):
        worker = WorkerProcess(url_of(server, "worker"), tiny_model, tmp_path / "worker.log", **options).wait_ready()
        try:
            assert read(app, documents.fax(), b"") == [None, ErrorCode.EMPTY_DOCUMENT]
            assert read(app, documents.three_pages()) == [None]
            late = app.send_task("ocr.documents", kwargs={"documents": []}, queue="ocr", countdown=1)
            assert ErrorCode.NO_DOCUMENTS in str(late.get(timeout=WAIT_S, propagate=False))
            wait_until(lambda: not admin.exists(keys.unacked("ocr")), what="nothing is held")
        finally:
            worker.stop()
        assert denied(admin) == []
