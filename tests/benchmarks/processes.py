"""Worker processes from outside: start, CPU time and memory of the whole tree, stop.

CPU time comes from /proc (user + system of every process below, and of children that ended), so all
contestants are measured alike and none of them measures itself. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.broker import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_TIMEOUT_S = 40.0
SAMPLE_S = 0.02
LOG_TAIL_LINES = 15


class WorkerProcess:
    """One started worker, its children included.

    Args:
        command: program and arguments.
        env: its whole environment.
        cwd: its working directory.
        log: file that takes its output.
        cpu: the one core it may use; None = all.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, cpu: int | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        if cpu is not None:
            os.sched_setaffinity(self._process.pid, {cpu})

    def check(self) -> None:
        """Raise BenchError, with the log's end, when the worker has ended."""
        if self._process.poll() is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            message = f"worker ended with {self._process.returncode}, see {self._log}:\n{tail}"
            raise BenchError(message)

    def cpu_s(self) -> float:
        """User and system seconds of the tree so far."""
        return TICK_S * sum(sum(map(int, _stat(pid)[11:15])) for pid in _tree(self._process.pid))

    def spent_since(self, is_ready: Callable[[], bool]) -> tuple[float, float]:
        """Block until it ends; wall and CPU seconds of its tree since `is_ready` was first true.

        Children that nobody waits for count, too: by what they had spent when they were last seen.

        Raises:
            BenchError: it failed, or was never ready.
        """
        spent: dict[int, float] = {}
        ready: tuple[float, float] | None = None
        while self._process.poll() is None:
            spent |= {pid: TICK_S * sum(map(int, stat[11:13])) for pid, stat in _stats(self._process.pid)}
            if ready is None and is_ready():
                ready = time.perf_counter(), sum(spent.values())
            time.sleep(SAMPLE_S)
        if self._process.returncode or ready is None:
            self.check()
            raise BenchError("it was never ready")
        return time.perf_counter() - ready[0], sum(spent.values()) - ready[1]

    def rss_mib(self) -> float:
        """Resident memory of the tree; pages shared between its processes count in each."""
        return PAGE_BYTES / 2**20 * sum(int(_stat(pid)[21]) for pid in _tree(self._process.pid))

    def peak_rss_mib(self) -> float:
        """The most resident memory that each process of the tree has had, added up."""
        return sum(_peak_kib(pid) for pid in _tree(self._process.pid)) / 2**10

    def stop(self) -> None:
        """Ask it to drain, then kill what does not end in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _stats(pid: int) -> Iterator[tuple[int, list[str]]]:
    """`pid` and its descendants with their `_stat`, but for those that end meanwhile."""
    for one in _tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield one, _stat(one)


def _tree(pid: int) -> list[int]:
    """`pid` and its living descendants."""
    found, pending = [], [pid]
    while pending:
        current = pending.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                pending += map(int, children.read_text().split())
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name: [11:15] are CPU ticks, [21] resident pages."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _peak_kib(pid: int) -> int:
    """`VmHWM` of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
