"""Which metrics a query names, and which exist."""

from __future__ import annotations

import re
from typing import Final

from worker.metrics import CATALOGUE

# prometheus-client's own collectors, which every process of ours has.
_PROCESS: Final = frozenset({"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"})
_NAME: Final = re.compile(r"\b(?:batchmill|process|python)[a-z0-9_:]*\b")
_STRING: Final = re.compile(r'"[^"]*"')
_GROUPED: Final = re.compile(r"\b(?:by|on|group_left) \(([\w, ]*)\)")
_MATCHED: Final = re.compile(r"(\w+)(?:!?=~?)\"")
# What a scrape adds, and what a histogram's buckets and our recorded series have besides.
_ADDED: Final = frozenset({"namespace", "pod", "instance", "le"})


def named_in(query: str) -> set[str]:
    """Return the metrics and recorded series that a query names."""
    return set(_NAME.findall(_STRING.sub('""', query)))


def labels_in(query: str) -> set[str]:
    """Return the labels that a query groups by, joins on or selects by."""
    grouped = {label for labels in _GROUPED.findall(query) for label in labels.split(", ") if label}
    return grouped | set(_MATCHED.findall(query))


def labels_of(query: str) -> set[str]:
    """Return the labels that the catalogue's metrics in a query have, with those that a scrape adds."""
    named = named_in(query)
    families = {name.removesuffix(part) for name in named for part in ("_bucket", "_sum", "_count", "")}
    recorded = {label for name in named if ":" in name for label in ("queue", "band", "model", "label")}
    return _ADDED | recorded | {label for metric in CATALOGUE if metric.name in families for label in metric.labels}


def existing() -> set[str]:
    """Return every series name that the catalogue's metrics have when they are scraped."""
    names = set(_PROCESS)
    for metric in CATALOGUE:
        names.add(metric.name)
        if metric.kind == "histogram":
            names.update(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    return names
