"""How much faster a worker is when it holds more messages, from what `make bench BENCH=queue` has measured."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FULL_BATCH: Final = 32  # messages of one ticket; BATCHMILL_MAX_BATCH_SIZE
MEASURED_GAIN: Final = 1.3  # MiniLM: 7.4 ms alone, 5.7 ms of a burst

Gains: TypeAlias = tuple[tuple[int, float], ...]


def gains_of(gain: float) -> Gains:
    """Return throughput over that of a message alone, by messages held: half of the gain at a quarter of a batch."""
    return (1, 1.0), (FULL_BATCH // 4, (1.0 + gain) / 2), (FULL_BATCH, gain)


DEFAULT_GAINS: Final = gains_of(MEASURED_GAIN)


def measured_gain(path: Path, model: str = "minilm") -> float:
    """Return CPU seconds of a ticket alone over those of a ticket in a burst, from `.bench/queue.json`.

    Raises:
        ConfigError: the file is not what the benchmark writes, or lacks the model.
    """
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        alone_s = _cpu_s_per_job(runs, ("raw", model, "single"))
        burst_s = _cpu_s_per_job(runs, ("batchmill", model, "throughput"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not the figures of `make bench BENCH=queue` with the model {model}") from error
    return max(1.0, alone_s / burst_s)


def _cpu_s_per_job(runs: Sequence[dict[str, Any]], wanted: tuple[str, str, str]) -> float:
    return median(
        float(run["cpu_s"]) / int(run["jobs"]) for run in runs if (run["who"], run["model"], run["kind"]) == wanted
    )
