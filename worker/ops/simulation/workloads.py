"""Three days as services like this one have them, generated from a seed; docs/scaling.md says why these.

Messages differ in size by three orders of magnitude, and the mix shifts over the day: that is what a policy must stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from schemas.names import Band
from worker.ops.simulation.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

HOUR_S: Final = 3600.0
TICKET_S: Final = (
    0.04  # an e-mail of 270 tokens: five times the 7.4 ms of a standard ticket in `make bench BENCH=queue`
)
PAGE_S: Final = 1.0
FOUR_HOURS_S: Final = 4 * HOUR_S


@dataclass(frozen=True, slots=True)
class Scenario:
    """A trace, and what its users expect.

    Attributes:
        trace: what arrives.
        objectives_s: wait beyond which a message is late, by band.
        few: messages that a worker takes however large they are (BATCHMILL_MAX_JOBS_IN_FLIGHT, at most 8).
        target_s: backlog seconds for each replica that we recommend.
    """

    trace: Trace
    objectives_s: Sequence[float]
    few: int
    target_s: float


def office(seed: int) -> Scenario:
    """A Monday of a help desk, 7 to 15 h: mails of one ticket, and imports of 10 to 2,000 tickets from other systems.

    At 8 h the mailbox connector sends the weekend's 2,000 mails at once. Imports come mostly before nine, and dozens of
    them at each full hour; at noon there is a dip.
    """
    rng = np.random.default_rng((seed, 1))
    hours = (0, 0.75, 1, 2, 4.75, 5.25, 5.75, 6.25, 8)
    mails_s = _arrivals(rng, hours, (0.05, 0.1, 0.3, 0.35, 0.3, 0.1, 0.1, 0.25, 0.15))
    weekend_s = HOUR_S + rng.uniform(0, 60, 2000)
    imports_s = _arrivals(rng, hours, (0.2, 0.35, 0.3, 0.15, 0.15, 0.05, 0.05, 0.15, 0.08))
    hourly_s = np.concatenate([hour * HOUR_S + rng.uniform(0, 120, rng.integers(20, 60)) for hour in range(1, 8)])
    parts = [
        *(_tickets(rng, at_s, np.ones(len(at_s)), Band.INTERACTIVE) for at_s in (mails_s, weekend_s)),
        *(_tickets(rng, at_s, _imports(rng, len(at_s)), Band.INTERACTIVE) for at_s in (imports_s, hourly_s)),
    ]
    trace = _merged("office", parts, 8.5 * HOUR_S)
    return Scenario(trace, (60.0, 60.0, FOUR_HOURS_S), few=8, target_s=25.0)


def documents(seed: int) -> Scenario:
    """Six hours of scans by URI: letters of a few pages, steadily, and boxes of files of 30 to 500 pages now and then.

    Twice the mail room scans its post: 500 letters within five minutes.
    """
    rng = np.random.default_rng((seed, 2))
    steady_s = _arrivals(rng, (0, 5.5), (0.4, 0.4))
    post_s = np.concatenate([hour * HOUR_S + rng.uniform(0, 300, 500) for hour in (1.5, 4.5)])
    letters_s = np.concatenate([steady_s, post_s])
    parts = [_documents(rng, letters_s, np.clip(np.round(rng.lognormal(np.log(2), 0.8, len(letters_s))), 1, 30))]
    for box_s in rng.uniform(0.3 * HOUR_S, 5 * HOUR_S, 4):
        pages = np.clip(np.round(30 * (1 + rng.pareto(1.5, 60))), 30, 500)
        parts.append(_documents(rng, box_s + rng.uniform(0, 240, len(pages)), pages))
    trace = _merged("documents", parts, 6.5 * HOUR_S)
    return Scenario(trace, (120.0, 120.0, FOUR_HOURS_S), few=2, target_s=25.0)


def nightly(seed: int) -> Scenario:
    """An evening, 18 to 2 h: mails and imports, fewer and fewer, and at 20 h 600 messages of bulk work."""
    rng = np.random.default_rng((seed, 3))
    hours = (0, 1, 3, 5, 8)
    mails_s = _arrivals(rng, hours, (0.3, 0.2, 0.15, 0.1, 0.05))
    imports_s = _arrivals(rng, hours, (0.08, 0.1, 0.1, 0.06, 0.03))
    batch_s = 2 * HOUR_S + rng.uniform(0, 120, 600)
    parts = [
        _tickets(rng, mails_s, np.ones(len(mails_s)), Band.INTERACTIVE),
        _tickets(rng, imports_s, _imports(rng, len(imports_s)), Band.INTERACTIVE),
        _tickets(rng, batch_s, rng.uniform(500, 1500, len(batch_s)), Band.BULK),
    ]
    trace = _merged("nightly", parts, 8.5 * HOUR_S)
    return Scenario(trace, (60.0, 60.0, FOUR_HOURS_S), few=8, target_s=25.0)


SCENARIOS: Final[Mapping[str, Callable[[int], Scenario]]] = {
    "office": office,
    "documents": documents,
    "nightly": nightly,
}

_Part: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], Band]"


def _arrivals(rng: Generator, hours: Sequence[float], per_s: Sequence[float]) -> NDArray[np.float64]:
    """Return the times of a Poisson process whose rate goes in straight lines from one hour to the next."""
    grid_s = np.linspace(0, hours[-1] * HOUR_S, 4096)
    rate = np.interp(grid_s, np.asarray(hours) * HOUR_S, per_s)
    sums = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid_s))])
    times_s: NDArray[np.float64] = np.interp(np.sort(rng.uniform(0, sums[-1], rng.poisson(sums[-1]))), sums, grid_s)
    return times_s


def _imports(rng: Generator, messages: int) -> NDArray[np.float64]:
    """Return how many tickets each import has."""
    return np.clip(np.round(rng.lognormal(np.log(150), 1.0, messages)), 10, 2000)


def _tickets(rng: Generator, arrival_s: NDArray[np.float64], tickets: NDArray[np.float64], band: Band) -> _Part:
    """Messages whose tickets tell their work but roughly: texts differ."""
    text = tickets * rng.lognormal(0, 0.6 / np.sqrt(tickets))
    return arrival_s, TICKET_S * text * rng.lognormal(0, 0.15, len(text)), np.round(tickets), band


def _documents(rng: Generator, arrival_s: NDArray[np.float64], pages: NDArray[np.float64]) -> _Part:
    return arrival_s, PAGE_S * pages * rng.lognormal(0, 0.3, len(pages)), pages, Band.INTERACTIVE


def _merged(name: str, parts: Sequence[_Part], end_s: float) -> Trace:
    arrival_s, service_s, units = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:3])
    band = np.concatenate([np.full(len(part[0]), int(part[3])) for part in parts])
    order = np.argsort(arrival_s, kind="stable")
    return Trace(name, arrival_s[order], service_s[order], units[order], band[order], end_s)
