"""A worker in a process of its own, as an operator would start it.

It is gone when the block that started it ends, and its log is quoted should it end sooner.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tasks.commands.exits import Unfit

_LOG_TAIL_LINES: Final = 15


class WorkerProcess:
    """A running `batchmill worker` and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def require_alive(self) -> None:
        """Do nothing while the process runs.

        Raises:
            Unfit: it has ended; the text holds the end of its log.
        """
        if (code := self._process.poll()) is not None:
            tail = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            raise Unfit("\n".join([f"the worker ended with exit code {code}; its last lines:", *tail]))

    def stop(self, timeout_s: float) -> int:
        """Ask it to drain and wait; kill it at the timeout. Return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@contextmanager
def running_worker(environment: Mapping[str, str], stop_within_s: float) -> Iterator[WorkerProcess]:
    """Start `batchmill worker` with `environment`; stop it at the end of the block, however that ends."""
    with tempfile.TemporaryDirectory(prefix="batchmill-") as directory:
        log_path = Path(directory) / "worker.log"
        with log_path.open("wb") as log_file:
            command = [sys.executable, "-m", "tasks.cli", "worker"]
            process = subprocess.Popen(command, env=environment, stdout=log_file, stderr=log_file)  # noqa: S603 - ours
        worker = WorkerProcess(process, log_path)
        try:
            yield worker
        finally:
            worker.stop(stop_within_s)
