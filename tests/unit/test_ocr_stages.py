"""Why a document cannot be had is told without anything of it: frames would keep its bytes until the message ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.limits import DocumentLimits
from tasks.ocr.sources import AllowedPrefix
from tasks.ocr.stages import DocumentStage, Request
from worker.errors import ItemFailed
from worker.jobs import Cancellation
from worker.storage.errors import Forbidden, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

INFO = {"name": "ocr-test"}
FAR = Request("s3://scans/a", None, 1, None)
WHY = ("s3://scans/a", "why")


def empty(uri: str, most_bytes: int) -> bytes:
    del uri, most_bytes
    return b""


def raising(error: Exception) -> Callable[[str, int], bytes]:
    def read(uri: str, most_bytes: int) -> bytes:
        del uri, most_bytes
        raise error

    return read


def outcome(request: Request, read: Callable[[str, int], bytes]) -> object:
    stage = DocumentStage(INFO, DocumentLimits(), [AllowedPrefix("scans")], read)
    (found,) = stage.run([request], Cancellation())
    return found


@pytest.mark.parametrize(
    ("request_", "read", "code"),
    [
        pytest.param(FAR, raising(NotFound(*WHY)), ErrorCode.OBJECT_NOT_FOUND, id="not there"),
        pytest.param(FAR, raising(Forbidden(*WHY)), ErrorCode.STORE_FORBIDDEN, id="refused"),
        pytest.param(FAR, raising(Unavailable(*WHY)), ErrorCode.STORE_UNAVAILABLE, id="down"),
        pytest.param(Request("s3://else/a", None, 1, None), empty, ErrorCode.FORBIDDEN_URI, id="elsewhere"),
        pytest.param(Request(None, "!", 1, None), empty, ErrorCode.INVALID_BASE64, id="no base64"),
    ],
)
def test_why_a_document_cannot_be_had_keeps_nothing_of_it(
    request_: Request, read: Callable[[str, int], bytes], code: ErrorCode
) -> None:
    failed = outcome(request_, read)

    assert isinstance(failed, ItemFailed)
    assert failed.code is code
    assert (failed.__traceback__, failed.__context__) == (None, None)
