"""What a benchmark leaves behind: `.bench/NAME.json`, and its figures as a table with the goal beside each.

It knows machines, versions, names and numbers; what they mean is for the benchmark that made them.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

DASH = "-"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must reach and what it is after; `at_most` turns both into upper bounds."""

    must: float
    after: float
    at_most: bool = False

    def met(self, figure: float) -> bool:
        """Whether `figure` is as good as it must be."""
        return figure <= self.must if self.at_most else figure >= self.must

    @property
    def bounds(self) -> tuple[str, str]:
        """Both bounds as a table shows them."""
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {self.must:g}", f"{sign} {self.after:g}"


def this_machine() -> dict[str, object]:
    """What the figures are measured on, and how busy it is before they are."""
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "kernel": platform.release(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def save(
    path: Path,
    machine: Mapping[str, object],
    versions: Mapping[str, object],
    figures: Mapping[str, float],
    runs: Sequence[Mapping[str, object]],
) -> None:
    """Write the figures, what they were measured on, and every run behind them."""
    document = {
        "machine": machine,
        "versions": versions,
        "measures": {name: round(figure, 4) for name, figure in figures.items()},
        "runs": runs,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def print_figures(console: Console, figures: Mapping[str, float], goals: Mapping[str, Goal]) -> None:
    """Each figure with what it must reach and what it is after."""
    table = Table("measure", "figure", "must", "after", "holds")
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, figure in figures.items():
        goal = goals.get(name)
        bounds = goal.bounds if goal else (DASH, DASH)
        verdict = DASH if goal is None else "[green]yes[/]" if goal.met(figure) else "[red]no[/]"
        table.add_row(name, f"{figure:.3f}", *bounds, verdict)
    console.print(table)
