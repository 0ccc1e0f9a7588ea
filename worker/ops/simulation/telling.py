"""What a simulated worker tells with the renewal of its lease: measured by the classes that do so in a real one.

A simulated worker has one CPU, which is its only resource: no finisher, no slots. It opens messages as it takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.jobs import Charge
from worker.loads import NO_LOAD, Load, Loads, from_text, to_text
from worker.ops.simulation.traces import BANDS
from worker.rates import NO_NEWS, News, ServiceRates

if TYPE_CHECKING:
    from worker.ops.simulation.workers import Work

RENEW_S: Final = 4.0  # a third of a lease of 12 s
QUEUE: Final = "simulated"
CPU: Final = "cpu"


class Teller:
    """The measuring of one worker.

    Args:
        now_s: the simulation's time.
    """

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._rates = ServiceRates()
        self._loads = Loads(lambda: self._now_s)

    def opened(self, band: int, units: float) -> None:
        """Note of how many units a message consists."""
        self._rates.opened(Charge(QUEUE, band), 1, round(units))

    def renewal(self, work: Work, now_s: float) -> tuple[Load, News]:
        """Take what got done out of `work`; return how busy the worker is, and what is new of its rate.

        A unit counts when it has been done as a whole, busy time at once.
        """
        self._now_s = now_s
        busy_s = sum(work.busy_s)
        if busy_s:
            units = int(work.units + 1e-6)
            work.units -= units
            self._rates.done(QUEUE, units, {CPU: busy_s})
        for band in range(BANDS):
            self._loads.note(CPU, Charge(QUEUE, band), work.busy_s[band])
            work.busy_s[band] = 0.0
        load = from_text(to_text(self._loads.now())).get(QUEUE, NO_LOAD)
        return load, self._rates.news().get(QUEUE, NO_NEWS)
