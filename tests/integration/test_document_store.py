"""Documents in a store that stalls: their worker gives them up before its watchdog gives up the worker."""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.objects import DocumentObjects
from tests.s3_proxy import Fault, S3Proxy
from tests.s3_servers import BUCKET
from worker.errors import ItemFailed
from worker.settings import Settings
from worker.storage.s3 import S3Store

if TYPE_CHECKING:
    from tests.s3_servers import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT_S: Final = Settings.model_fields["batch_timeout_s"].default


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_store_that_stalls_costs_a_document_less_than_the_watchdog_allows(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with S3Proxy(seaweed.port) as proxy:
        for name, value in seaweed.environment(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        S3Store().put_bytes(uri, b"scan" * 1_000)
        objects = DocumentObjects()
        assert objects.read(uri, 4_000) == b"scan" * 1_000

        proxy.inject(method, Fault.STALL, 100)
        began_s = monotonic()
        with pytest.raises(ItemFailed) as failed:
            objects.read(uri, 4_000)

        assert failed.value.code is ErrorCode.STORE_UNAVAILABLE
        assert monotonic() - began_s < LIMIT_S / 2
