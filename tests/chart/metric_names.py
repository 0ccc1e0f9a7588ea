"""Which metrics a query names, and which exist."""

from __future__ import annotations

import re
from typing import Final

from worker.metrics import CATALOGUE

# prometheus-client's own collectors, which every process of ours has.
_PROCESS: Final = frozenset({"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"})
_NAME: Final = re.compile(r"\b(?:batchmill|process|python)[a-z0-9_:]*\b")
_STRING: Final = re.compile(r'"[^"]*"')


def named_in(query: str) -> set[str]:
    """Return the metrics and recorded series that a query names."""
    return set(_NAME.findall(_STRING.sub('""', query)))


def existing() -> set[str]:
    """Return every series name that the catalogue's metrics have when they are scraped."""
    names = set(_PROCESS)
    for metric in CATALOGUE:
        names.add(metric.name)
        if metric.kind == "histogram":
            names.update(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    return names
