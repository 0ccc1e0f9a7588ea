"""Documents in a store that stalls: each is given up in a known time, for which its worker is left alone."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode
from tasks.ocr.objects import DocumentObjects, longest_read_s
from tasks.ocr.serving import load_ocr
from tasks.ocr.stages import FETCHERS
from tests.echo import Heard
from tests.s3_proxy import Fault, S3Proxy
from tests.s3_servers import BUCKET
from worker.engine import Engine
from worker.errors import ItemFailed
from worker.jobs import Job
from worker.settings import Settings
from worker.storage.s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.s3_servers import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def stored(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> Iterator[tuple[S3Proxy, str]]:
    """Yield a proxy before the store, and the address of an object that it has."""
    with S3Proxy(seaweed.port) as proxy:
        for name, value in seaweed.environment(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        S3Store().put_bytes(uri, b"x" * size_bytes)
        yield proxy, uri


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_document_of_a_store_that_stalls_is_given_up_in_a_known_time(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with stored(seaweed, monkeypatch, 4_000) as (proxy, uri):
        objects = DocumentObjects()
        assert objects.read(uri, 4_000) == b"x" * 4_000

        proxy.inject(method, Fault.STALL, 100)
        began_s = monotonic()
        with pytest.raises(ItemFailed) as failed:
            objects.read(uri, 4_000)

        assert failed.value.code is ErrorCode.STORE_UNAVAILABLE
        assert monotonic() - began_s < longest_read_s(4_000)


def test_a_worker_outlives_a_store_that_stalls_however_short_its_batches_may_be(
    seaweed: S3Server, ocr_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        models_dir=ocr_model.parent, ocr_model=ocr_model.name, document_sources=(f"s3://{BUCKET}",), batch_timeout_s=0.5
    )
    lanes, pipeline = load_ocr(settings)
    heard = Heard()
    with stored(seaweed, monkeypatch, 4_000) as (proxy, uri):
        engine = Engine(lanes, heard, runners=1, batch_timeout_s=settings.batch_timeout_s, stuck_grace_s=0.5)
        engine.start()
        proxy.inject("HEAD", Fault.STALL, 100)
        job = Job("job", pipeline, 0.0)
        asked = [{"id": str(number), "uri": uri} for number in range(FETCHERS)]
        engine.submit(job, (), {"documents": asked})
        heard.wait_for("finished", job, timeout_s=60)

        assert [item.outcome.code for item in job.items if isinstance(item.outcome, ItemFailed)] == [
            ErrorCode.STORE_UNAVAILABLE
        ] * FETCHERS
        assert heard.broken_by == []
        engine.stop(1.0)
