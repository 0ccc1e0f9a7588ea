"""What one pod does with messages: what the simulation asks of any worker.

It serves one second of work a second. It knows the clock only as an argument, and neither queue nor autoscaler. A
message is its number in the trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from worker.ops.simulation.traces import BANDS

if TYPE_CHECKING:
    from collections.abc import Sequence


NEVER_S: Final = math.inf


@dataclass(slots=True)
class Work:
    """What a pod got done since it was last asked.

    Attributes:
        busy_s: by band.
        units: that were worked through.
    """

    busy_s: list[float] = field(default_factory=lambda: [0.0] * BANDS)
    units: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """What becomes of the messages that a stopped pod held.

    Attributes:
        back: message and seconds from now until it waits again, the next to be served last.
        lost: messages that nobody has any more.
    """

    back: Sequence[tuple[int, float]] = ()
    lost: Sequence[int] = ()


class Worker(Protocol):
    """A pod's worker. Every call is made at a time not before the one of the call before."""

    work: Work

    def __len__(self) -> int:
        """Return the number of messages that it holds."""

    def turn(self) -> float:
        """Return a sort key: of the workers with room the least takes the next message."""

    def has_room(self) -> bool:
        """Say whether it takes another message."""

    def take(self, message: int, now_s: float) -> None:
        """Hold a message."""

    def next_end_s(self) -> float:
        """Return when the next message ends if nothing comes between; `NEVER_S` if none does."""

    def advance(self, now_s: float) -> list[int]:
        """Work until now; return the messages that have ended."""

    def stop(self, now_s: float) -> float:
        """Take note of SIGTERM; return when the process has ended at the latest."""

    def is_drained(self) -> bool:
        """Say whether a stopping worker has nothing more to do."""

    def leave(self, now_s: float, *, killed: bool) -> Left:
        """Return what becomes of what it holds, now that the process has ended."""
