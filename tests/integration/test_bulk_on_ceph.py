"""A bulk run on Ceph RGW, an older and stricter store: probed, planned, labelled, verified, and finished once."""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.bulk.finaliser import read_manifest
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tests.s3_servers import BUCKET
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from celery import Celery

    from tests.rgw import RadosGateway
    from tests.services import WorkerProcess

ROWS: Final = 300
WAIT_S: Final = 60.0


def test_a_run_on_ceph_ends_well_and_verifies(
    app: Celery,
    rgw: RadosGateway,
    start_worker: Callable[..., WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in rgw.environment().items():
        monkeypatch.setenv(name, value)
    content = io.BytesIO()
    texts = [f"my card is lost {row}" for row in range(ROWS - 1)]
    pq.write_table(pa.table({"text": [*texts, None]}), content, row_group_size=70)
    prefix = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    stores = Stores()
    stores.of(prefix).put_bytes(f"{prefix}/in/a.parquet", content.getvalue())
    start_worker(queues="classify,bulk")

    request = {"inputs": [f"{prefix}/in/*.parquet"], "output": f"{prefix}/out", "text": "text", "shard_rows": 64}
    answers = [app.send_task("bulk.classify", kwargs=request, queue="bulk") for _ in range(2)]
    first, second = (answer.get(timeout=WAIT_S) for answer in answers)
    wait_until(lambda: stores.of(prefix).exists(f"{prefix}/out/_SUCCESS"), WAIT_S, "the run ends well")

    assert first == second
    manifest = read_manifest(stores.of(prefix), f"{prefix}/out")
    assert manifest is not None
    assert (manifest.totals.rows, manifest.totals.rejected, manifest.differing_parts) == (ROWS, 1, 0)
    assert verify(stores, f"{prefix}/out").problems == ()
