"""Flower, started against a broker, and its HTTP API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.services import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Flower:
    """A running Flower."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return what the API answers, None as long as it answers nothing."""
        try:
            with urlopen(f"{self._url}{path}", timeout=10) as response:  # noqa: S310 - our own address
                return json.load(response)
        except (HTTPError, URLError):
            return None


@contextmanager
def running_flower(broker_url: str, log: Path) -> Iterator[Flower]:
    """Run Flower inside the block."""
    port = free_port()
    command = [sys.executable, "-m", "celery", "-b", broker_url, "flower", "--address=127.0.0.1", f"--port={port}"]
    environment = os.environ | {"FLOWER_UNAUTHENTICATED_API": "true"}
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        flower = Flower(port)
        try:
            wait_until(lambda: flower.get("/api/workers") is not None, 30, "Flower answers")
            yield flower
        finally:
            process.terminate()
