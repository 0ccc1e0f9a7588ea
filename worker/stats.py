"""What an engine has done, counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.planner import Batch

RATE_WEIGHT = 0.1  # of the newest batch in the moving average


@dataclass(slots=True)
class Stats:
    """What the engine did since it started; `items_per_s` is one busy runner's moving average."""

    batches: int = 0
    rows: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    busy_s: float = 0.0
    items_per_s: float = 0.0

    def add(self, batch: Batch, elapsed_s: float) -> None:
        """Count one batch."""
        rate = len(batch.items) / max(elapsed_s, 1e-6)
        self.items_per_s += (rate - self.items_per_s) * (RATE_WEIGHT if self.batches else 1.0)
        self.batches += 1
        self.rows += len(batch.rows)
        self.items += len(batch.items)
        self.real_tokens += batch.real_tokens
        self.padded_tokens += batch.padded_tokens
        self.busy_s += elapsed_s
