"""What arrives when, and how much work it is: the input of a simulation, generated elsewhere or read from a file."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas.names import Band, band_of
from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

TAIL_S: Final = 1800.0  # simulated after the last arrival of a trace that was read


BANDS: Final = len(Band)


class Messages(NamedTuple):
    """A trace for the event loop, each list by message; `densities` are units for each second of service."""

    arrivals_s: list[float]
    services_s: list[float]
    units: list[float]
    bands: list[int]
    densities: list[float]


@dataclass(frozen=True, slots=True)
class Trace:
    """Messages in the order of their arrival.

    Attributes:
        name: of the trace.
        arrival_s: float64[messages], ascending, from 0.
        service_s: float64[messages], what each takes on a worker that has nothing else and batches nothing.
        units: float64[messages], what a worker counts while it works: tickets or pages, whole ones.
        band: int64[messages], see `schemas.names.Band`.
        end_s: until when it is simulated; what has not ended by then is late.
    """

    name: str
    arrival_s: NDArray[np.float64]
    service_s: NDArray[np.float64]
    units: NDArray[np.float64]
    band: NDArray[np.int64]
    end_s: float

    def __post_init__(self) -> None:
        """Raise `ConfigError` unless the arrays make a trace."""
        if not len(self):
            raise ConfigError(f"trace {self.name}: it is empty")
        if np.any(np.diff(self.arrival_s) < 0) or self.arrival_s[0] < 0:
            raise ConfigError(f"trace {self.name}: arrival_s must ascend from 0")
        if not np.all(self.service_s > 0):
            raise ConfigError(f"trace {self.name}: service_s must be above 0")
        if not np.all((self.units > 0) & (self.units == np.floor(self.units))):
            raise ConfigError(f"trace {self.name}: units must be whole numbers above 0")

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.arrival_s)

    def messages(self) -> Messages:
        """Return the columns as lists, which a loop reads several times as fast as arrays."""
        return Messages(
            arrivals_s=self.arrival_s.tolist(),
            services_s=self.service_s.tolist(),
            units=self.units.tolist(),
            bands=self.band.tolist(),
            densities=(self.units / self.service_s).tolist(),
        )

    def offered_load(self) -> float:
        """Return how many workers would be busy all the time."""
        return float(self.service_s.sum() / self.end_s)


def read_trace(path: Path) -> Trace:
    """Return the trace in a CSV file (with a header) or a JSONL file (`.jsonl`).

    Columns: `arrival_s`, `service_s`, and where known `units` (else every message is 1)
    and `priority` (0 to 9, as Celery sends it; else 0).

    Raises:
        ConfigError: a row is not readable; the text names it.
    """
    rows = sorted(_rows(path))
    if not rows:
        raise ConfigError(f"{path}: no messages")
    arrival_s, service_s, units, band = (np.array(column) for column in zip(*rows, strict=True))
    return Trace(
        name=path.stem,
        arrival_s=arrival_s - arrival_s[0],
        service_s=service_s,
        units=units,
        band=band.astype(np.int64),
        end_s=float(arrival_s[-1] - arrival_s[0]) + TAIL_S,
    )


def _rows(path: Path) -> Iterator[tuple[float, float, float, int]]:
    with path.open(newline="", encoding="utf-8") as file:
        records = map(json.loads, file) if path.suffix == ".jsonl" else csv.DictReader(file)
        for number, record in enumerate(records, start=1):
            try:
                yield _row(record)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"{path}: message {number}: {error!r}") from error


def _row(record: Mapping[str, Any]) -> tuple[float, float, float, int]:
    arrival_s, service_s = float(record["arrival_s"]), float(record["service_s"])
    units, priority = float(record.get("units") or 1.0), int(record.get("priority") or 0)
    if not all(map(math.isfinite, (arrival_s, service_s, units))):
        raise ValueError("not a finite number")
    return arrival_s, service_s, units, band_of(priority)
