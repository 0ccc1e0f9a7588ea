"""A fleet of worker processes under a supervisor that starts again whatever dies, as Kubernetes or systemd would."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.services import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.faults.servers import Server

LOOK_EVERY_S: Final = 0.05
STOP_TIMEOUT_S: Final = 60.0


class Kill(NamedTuple):
    """A `kill -9`: when, of which process, and the jobs that it held then."""

    at_s: float
    pid: int
    held: frozenset[str]


class Fleet:
    """Workers by name. The supervisor is a thread; it starts a dead worker again under its name.

    Args:
        server: what they work for.
        model: directory of the model.
        directory: keeps their logs and the journal.
        held_by: which jobs a process holds, by the server's word.
    """

    def __init__(self, server: Server, model: Path, directory: Path, held_by: Callable[[int], frozenset[str]]) -> None:
        self._server = server
        self._model = model
        self._directory = directory
        self._held_by = held_by
        self._workers: dict[str, WorkerProcess] = {}
        self._settings: dict[str, dict[str, object]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self.journal_path = directory / "journal"
        self.kills: list[Kill] = []
        self.exit_codes: list[int] = []  # of workers that nobody had ended

    def start(self, *names: str, **settings: object) -> None:
        """Start a worker of each name, supervised from now on, and wait until all consume.

        `url` = where they find the server, if not where it is; `clock_offset_s` = how wrong their clocks are.
        """
        for name in names:
            self._settings[name] = {"url": self._server.url, "lease_s": 3, **settings}
            with self._lock:
                self._spawn(name)
        for name in names:
            self[name].wait_ready(60.0)
        if not self._supervisor.is_alive():
            self._supervisor.start()

    def __getitem__(self, name: str) -> WorkerProcess:
        """Return the worker that has this name now."""
        return self._workers[name]

    @property
    def names(self) -> list[str]:
        """The names of all workers."""
        return list(self._workers)

    @property
    def lines(self) -> str:
        """Everything that any worker has logged."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("*-*.log")))

    def kill(self, name: str, *, for_good: bool = False) -> Kill:
        """`kill -9` one worker; its supervisor starts it again, unless it is `for_good`."""
        with self._lock:  # the supervisor must not start the next before we have looked at what this one held
            worker = self._workers[name]
            worker.send(signal.SIGKILL)
            worker.wait()
            if for_good:
                del self._workers[name]
            self.kills.append(Kill(time.monotonic(), worker.process.pid, self._held_by(worker.process.pid)))
        return self.kills[-1]

    def kill_every(self, seconds: float, random: Random, until: Callable[[], bool]) -> None:
        """Kill a random worker every so often until `until`; returns then."""
        next_s = time.monotonic() + seconds
        while not until():
            if time.monotonic() >= next_s:
                next_s += seconds
                self.kill(random.choice(self.names))
            time.sleep(LOOK_EVERY_S)

    def replace(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop a worker as a rollout does, wait for its end, start the next; return the exit code of the first."""
        with self._lock:
            worker = self._workers[name]
            worker.send(number)
            code = worker.wait(STOP_TIMEOUT_S)
            self._spawn(name)
        self._workers[name].wait_ready(60.0)
        return code

    def end(self, name: str) -> int:
        """Stop a worker for good; return its exit code."""
        with self._lock:
            return self._workers.pop(name).stop(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End everything, all at once: SIGTERM. They are not supervised any more."""
        self._closed.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        for worker in self._workers.values():
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.terminate()
        for worker in self._workers.values():
            worker.wait(STOP_TIMEOUT_S)

    def _spawn(self, name: str) -> None:
        settings = dict(self._settings[name])
        url = str(settings.pop("url"))
        offset_s = str(settings.pop("clock_offset_s", 0))
        number = len(list(self._directory.glob(f"{name}-*.log")))
        command = [
            sys.executable,
            "-m",
            "tests.faults.shifted",
            offset_s,
            "tests.faults.models",
            str(self.journal_path),
        ]
        log = self._directory / f"{name}-{number}.log"
        self._workers[name] = WorkerProcess(
            url, self._model, log, command=command, worker_name=f"{name}@%h", **settings
        )

    def _supervise(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            with self._lock:
                for name, worker in list(self._workers.items()):
                    if (code := worker.process.poll()) is not None:
                        worker.wait()
                        if code != -signal.SIGKILL:
                            self.exit_codes.append(code)
                        self._spawn(name)
