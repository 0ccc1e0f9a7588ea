"""What workers tell of their queues, in short."""

from __future__ import annotations

from schemas.names import Band
from worker.rates import News, Opened


def news(
    units_per_s: float | None = None, messages: float = 0.0, units: int = 0, *, band: int = Band.INTERACTIVE
) -> News:
    """Return news of messages of one band."""
    return News(units_per_s, tuple(Opened(messages, units) if one == band else Opened() for one in Band))
