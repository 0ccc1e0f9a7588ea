"""Who runs: this worker, Celery (prefork and solo), celery-batches; how each starts and what it is sent.

Every contestant gets the same model directory, tickets and cores. Where a contestant's process uses one
core, it gets one process a core. All settings are their defaults except those named here. It starts
processes and reads no clock.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from schemas.names import QUEUE_CLASSIFY, TASK_CLASSIFY
from tests.benchmarks import envs
from tests.benchmarks.broker import BenchError, Broker
from tests.benchmarks.models import REPOSITORY
from tests.benchmarks.processes import WorkerProcess
from worker.models.cpu import available_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.benchmarks.workload import Ticket

PEERS = REPOSITORY / "tests" / "benchmarks" / "peers"
COUNTED = REPOSITORY / "tests" / "benchmarks" / "counted.py"
QUIET = "--loglevel WARNING --without-gossip --without-mingle"  # as this project's worker runs
SORTED = "celery-batches sorted"
BATCHES = ("celery-batches", SORTED)
READY_TIMEOUT_S = 60.0
PING_S = 0.5


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the tickets.

    Attributes:
        title: as the table shows it.
        python: the interpreter of its environment.
        module: the module that it runs, with its arguments; `{name}` stands for the worker's name.
        env: its variables; `{url}`, `{model}` and `{name}` are filled in.
        processes: how many of them.
        queue: where its messages go.
        task: the Celery task's name.
        arguments: a ticket as the task's keyword arguments.
    """

    title: str
    python: Path
    module: tuple[str, ...]
    env: Mapping[str, str]
    processes: int
    queue: str
    task: str
    arguments: Callable[[Ticket], dict[str, object]]


def ours(python: Path) -> Contestant:
    """This project's worker: one process with a runner a core, default settings."""
    return Contestant(
        title="batchmill",
        python=python,
        module=("tasks.cli", "worker"),
        env={
            "PYTHONPATH": str(REPOSITORY),
            "BATCHMILL_BROKER_URL": "{url}",
            "BATCHMILL_MODEL": "{model}",
            "BATCHMILL_WORKER_NAME": "{name}",
        },
        processes=1,
        queue=QUEUE_CLASSIFY,
        task=TASK_CLASSIFY,
        arguments=lambda ticket: {"tickets": [{"id": ticket.id, "text": ticket.text}]},
    )


def peers(bench_dir: Path) -> dict[str, Contestant]:
    """The peers by name, their environments built."""
    celery = envs.python_of("celery", bench_dir)
    batches = envs.python_of("celery-batches", bench_dir)
    cores = available_cpus()
    in_batches = _peer(f"celery-batches x {cores}", batches, "batches_app", ("solo", 1), processes=cores)
    return {
        "prefork": _peer(f"Celery prefork -c {cores}", celery, "celery_app", ("prefork", cores), processes=1),
        "solo": _peer(f"Celery solo x {cores}", celery, "celery_app", ("solo", 1), processes=cores),
        "celery-batches": in_batches,
        SORTED: replace(
            in_batches, title=f"celery-batches sorted x {cores}", env={**in_batches.env, "BENCH_SORTED": "1"}
        ),
    }


@contextlib.contextmanager
def running(  # noqa: PLR0913 - one run is all of these
    contestant: Contestant,
    broker: Broker,
    model: Path,
    logs: Path,
    *,
    pins: Sequence[int] = (),
    counter: Path | None = None,
) -> Iterator[list[WorkerProcess]]:
    """Start a contestant, wait until each of its workers answers a ping, stop it afterwards.

    Args:
        contestant: who.
        broker: the server, which is emptied first.
        model: the model directory.
        logs: directory for the workers' output.
        pins: one worker for each core given, pinned to it; empty = as many as the contestant wants, unpinned.
        counter: file that grows by one byte for each request to the server; None = not counted.

    Raises:
        BenchError: a worker ended or did not answer.
    """
    broker.reset()
    cpus: Sequence[int | None] = pins or [None] * contestant.processes
    names = [f"w{index}@bench" for index in range(len(cpus))]
    workers: list[WorkerProcess] = []
    try:
        for name, cpu in zip(names, cpus, strict=True):
            fill = {"url": broker.url, "model": str(model), "name": name}
            command, env = _command(contestant, fill, counter)
            log = logs / f"{contestant.title}-{model.name}-{name}.log".replace(" ", "-")
            workers.append(WorkerProcess(command, env, logs, log, cpu))
        _wait_ready(broker, names, workers)
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def _peer(title: str, python: Path, app: str, pool: tuple[str, int], processes: int) -> Contestant:
    module = f"celery -A {app} worker -n {{name}} --pool {pool[0]} -c {pool[1]} {QUIET}"
    return Contestant(
        title=title,
        python=python,
        module=tuple(module.split()),
        env={
            "PYTHONPATH": str(PEERS),
            "BENCH_BROKER": "{url}",
            "BENCH_MODEL": "{model}",
            "TOKENIZERS_PARALLELISM": "false",
        },
        processes=processes,
        queue="celery",
        task="peer.classify",
        arguments=lambda ticket: {"text": ticket.text},
    )


def _command(contestant: Contestant, fill: Mapping[str, str], counter: Path | None) -> tuple[list[str], dict[str, str]]:
    """Program, arguments and environment of one worker; nobody's `BATCHMILL_*` settings leak in."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BATCHMILL_")}
    env |= {name: value.format(**fill) for name, value in contestant.env.items()}
    module = [part.format(**fill) for part in contestant.module]
    if counter:
        return [str(contestant.python), str(COUNTED), *module], env | {"BENCH_COUNTER": str(counter)}
    return [str(contestant.python), "-m", *module], env


def _wait_ready(broker: Broker, names: Sequence[str], workers: Sequence[WorkerProcess]) -> None:
    until_s = time.monotonic() + READY_TIMEOUT_S
    while len(broker.app.control.ping(destination=names, timeout=PING_S)) < len(names):
        for worker in workers:
            worker.check()
        if time.monotonic() > until_s:
            message = f"workers did not answer a ping within {READY_TIMEOUT_S:.0f} s"
            raise BenchError(message)
