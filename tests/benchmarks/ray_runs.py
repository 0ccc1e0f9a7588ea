"""Ray Data over the same rows: a pipeline in an environment of its own, with its processes measured from outside.

It starts a cluster and actors, which takes seconds. What it spends until every actor has its model does not count, as a
worker's start does not; its shutdown does.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.benchmarks.contestants import PEERS
from tests.benchmarks.lake import write_tickets
from tests.benchmarks.processes import WorkerProcess
from tests.benchmarks.runs import Run
from worker.models.cpu import available_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.models import BenchModel
    from tests.benchmarks.workload import Ticket

RAY: Final = "Ray Data"


def pipeline(python: Path, model: BenchModel, tickets: Sequence[Ticket], logs: Path) -> Run:
    """Label local Parquet with an actor a core, and wait for its end.

    Raises:
        BenchError: the pipeline failed.
    """
    actors = available_cpus()
    with TemporaryDirectory(prefix="batchmill-ray-") as name:
        directory = Path(name)
        write_tickets(directory / "tickets.parquet", tickets)
        command = [str(python), str(PEERS / "ray_data.py"), str(model.directory), name, str(actors)]
        env = os.environ | {"PYTHONPATH": str(PEERS), "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
        process = WorkerProcess(command, env, directory, logs / f"ray-{model.name}.log")
        try:
            wall_s, cpu_s = process.spent_since(lambda: len(list(directory.glob("ready-*"))) >= actors)
        finally:
            process.stop()
    return Run(RAY, model.name, "throughput", len(tickets), wall_s=wall_s, cpu_s=cpu_s)
