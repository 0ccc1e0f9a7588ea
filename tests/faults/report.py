"""Writes down what a fault run came to: `.bench/faults.json`, one entry for each fault and server."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from tests.services import ROOT

REPORT: Final = ROOT / ".bench" / "faults.json"


@dataclass
class Figures:
    """What a fault run reports.

    Attributes:
        jobs: that were sent.
        lost: of them, without an end.
        doubled: with two.
        restart_p99_s: how long after a kill what the worker held ran again, by its 99th percentile.
        holds: whether everything that must hold does.
    """

    jobs: int = 0
    lost: int = 0
    doubled: int = 0
    restart_p99_s: float | None = None
    holds: bool = False

    def write(self, name: str) -> None:
        """Add the figures to the report under `NAME@SERVER`, in place of an earlier run's."""
        REPORT.parent.mkdir(exist_ok=True)
        report = json.loads(REPORT.read_text()) if REPORT.exists() else {"faults": {}}
        report["faults"][name] = asdict(self)
        REPORT.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
