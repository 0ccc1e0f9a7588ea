"""What a stage says of a document that cannot be had or read in time.

Why is told without anything of it: frames would keep its bytes until the message ends.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.decoder import Decoder, GuardedDocument
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.objects import DocumentObjects
from tasks.ocr.sources import AllowedPrefix
from tasks.ocr.stages import DocumentStage, PageOf, PageStage, Request
from tests import pdf_files
from worker.errors import ItemFailed
from worker.jobs import Cancellation
from worker.storage.errors import Forbidden, NotFound, StorageError, Unavailable
from worker.storage.s3 import S3Store

INFO = {"name": "ocr-test"}
FAR = Request("s3://scans/a", None, 1, None)
WHY = ("s3://scans/a", "why")


@pytest.mark.parametrize(
    ("request_", "error", "code"),
    [
        pytest.param(FAR, NotFound(*WHY), ErrorCode.OBJECT_NOT_FOUND, id="not there"),
        pytest.param(FAR, Forbidden(*WHY), ErrorCode.STORE_FORBIDDEN, id="refused"),
        pytest.param(FAR, Unavailable(*WHY), ErrorCode.STORE_UNAVAILABLE, id="down"),
        pytest.param(Request("s3://else/a", None, 1, None), None, ErrorCode.FORBIDDEN_URI, id="elsewhere"),
        pytest.param(Request(None, "!", 1, None), None, ErrorCode.INVALID_BASE64, id="no base64"),
    ],
)
def test_why_a_document_cannot_be_had_keeps_nothing_of_it(
    request_: Request, error: StorageError | None, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def info(store: S3Store, uri: str) -> None:
        del store, uri
        assert error is not None, "nothing is asked of the store"
        raise error

    monkeypatch.setattr(S3Store, "info", info)
    stage = DocumentStage(INFO, DocumentLimits(), [AllowedPrefix("scans")], DocumentObjects())
    (failed,) = stage.run([request_], Cancellation())

    assert isinstance(failed, ItemFailed)
    assert failed.code is code
    assert (failed.__traceback__, failed.__context__) == (None, None)


def test_a_page_that_is_decoded_for_too_long_is_ended_by_the_watchdog() -> None:
    networks: Any = None  # no page comes so far
    limits = DocumentLimits(open_cpu_s=1000)
    stage, cancellation = PageStage(INFO, limits, networks), Cancellation()
    document = GuardedDocument(Decoder(limits), pdf_files.endless_page_tree(levels=60))
    document.pages = 1
    began_s = time.monotonic()
    watchdog = threading.Timer(2.0, cancellation.cancel)  # the child has started then
    watchdog.start()

    with pytest.raises(ItemFailed):
        stage.run([PageOf(document, 0)], cancellation)

    watchdog.join()
    assert time.monotonic() - began_s < 20
