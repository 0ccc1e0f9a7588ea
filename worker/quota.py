"""How much to fetch, as whoever knows the worker's room says it to whoever fetches."""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.names import Band

NOWHERE: Final = -1


class Quota(NamedTuple):
    """How much to fetch.

    Attributes:
        messages: at most; 0 or less = none.
        band: the least urgent that they may be of.
    """

    messages: int
    band: Band = Band.BULK

    @property
    def reach(self) -> int:
        """Down to which band it goes; `NOWHERE` if it is none."""
        return self.band if self.messages > 0 else NOWHERE
