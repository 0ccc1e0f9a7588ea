"""Ray Data over the same rows: a pipeline in an environment of its own, with its processes measured from outside.

It starts a cluster of its own in every run, which takes seconds. So it runs over few rows and over all, each in a fresh
process, and what the second takes beyond the first counts: its start is left out, as the worker's is.
"""

from __future__ import annotations

import os
import time
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
FEW_ROWS = 256


def pipeline(python: Path, model: BenchModel, tickets: Sequence[Ticket], logs: Path) -> Run:
    """Label local Parquet with an actor a core; what the first `FEW_ROWS` take is not counted.

    Raises:
        BenchError: the pipeline failed.
    """
    few, many = (_seconds(python, model, tickets[:rows], logs) for rows in (FEW_ROWS, len(tickets)))
    rows = len(tickets) - FEW_ROWS
    return Run(RAY, model.name, "throughput", rows, wall_s=many[0] - few[0], cpu_s=many[1] - few[1])


def _seconds(python: Path, model: BenchModel, tickets: Sequence[Ticket], logs: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one whole process tree, from its start to its end."""
    with TemporaryDirectory(prefix="batchmill-ray-") as name:
        directory = Path(name)
        write_tickets(directory / "tickets.parquet", tickets)
        command = [str(python), str(PEERS / "ray_data.py"), str(model.directory), name, str(available_cpus())]
        env = os.environ | {"PYTHONPATH": str(PEERS), "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
        start_s = time.perf_counter()
        process = WorkerProcess(command, env, directory, logs / f"ray-{model.name}.log")
        try:
            cpu_s = process.wait_cpu_s()
        finally:
            process.stop()
        return time.perf_counter() - start_s, cpu_s
