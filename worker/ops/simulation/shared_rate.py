"""What the news of workers make of the rate of their queue: `worker/lua/renew.lua` in Python, as a test proves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas.names import Band
from worker.rates import LEAST_UNITS

if TYPE_CHECKING:
    from worker.rates import News

SHARE: Final = 0.2
LATELY: Final = 50.0


@dataclass(slots=True)
class Lately:
    """What was opened, older messages counting less: units, and messages, `LATELY` or so in all."""

    units: float = 0.0
    messages: float = 0.0

    def open(self, messages: float, units: float) -> None:
        """Take in messages that a worker has opened."""
        if messages:
            kept = (1 - 1 / LATELY) ** messages
            weight = LATELY * (1 - kept)
            self.units = self.units * kept + units / messages * weight
            self.messages = self.messages * kept + weight
            if self.units:
                self.units = max(self.units, LEAST_UNITS * self.messages)

    @property
    def size(self) -> float:
        """Units of a message; 0 = nobody knows."""
        return self.units / self.messages if self.messages else 0.0


@dataclass(slots=True)
class SharedRate:
    """The rate of one queue, as its workers share it.

    Attributes:
        units_per_s: of one busy worker; each worker moves it a part of the way towards its own.
        all: what any of them opened.
        bands: the same, of each band.
    """

    units_per_s: float | None = None
    all: Lately = field(default_factory=Lately)
    bands: list[Lately] = field(default_factory=lambda: [Lately() for _ in Band])

    def learn(self, news: News) -> None:
        """Take in what a worker tells as it renews its lease."""
        if (told := news.units_per_s) is not None:
            before = told if self.units_per_s is None else self.units_per_s
            self.units_per_s = before + SHARE * (told - before)
        for band, opened in zip(self.bands, news.opened, strict=True):
            band.open(*opened)
        self.all.open(*map(sum, zip(*news.opened, strict=True)))

    @property
    def messages_per_s(self) -> float | None:
        """Messages a second that one busy worker gets done; None = nobody knows."""
        return self.units_per_s / self.all.size if self.units_per_s is not None and self.all.size else None

    @property
    def sizes(self) -> tuple[float, ...]:
        """Work of a message of each band, in those of all; 1 where nobody knows."""
        return tuple(band.size / self.all.size if band.size and self.all.size else 1.0 for band in self.bands)
