"""Is a worker alive, is it ready? Judged from facts alone; `worker.vitals` gathers them, `worker.ops.probes` answers.

Live means that a restart would not help: it works, or waits for what is not in its power. Ready means that a message
sent now would be taken. A worker that consumes nothing although it could is dead, whatever else of it runs; one whose
broker is away is alive, and reconnects; a busy one is alive, for its fetcher goes on looking for room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOP_S: Final = 60.0  # the event loop may connect, hand back, or wait for a fetcher to close
FETCH_S: Final = 30.0  # a fetcher's longest lawful wait is 10 s
MARGIN_S: Final = 5.0  # for the watchdog to end what is too long


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a worker at one moment.

    Attributes:
        starting: what it does before it can serve; empty once it has started.
        broken: why it is about to end; empty if it is not.
        draining: it was told to stop.
        dead_threads: names of those that ended and should not have.
        loop_silent_s: since the event loop last turned, or last tried to connect.
        is_connected: the event loop has a connection to the broker.
        unheard_s: since the broker last answered the keeper.
        unfetched_s: by queue that it must serve, since the queue's fetcher last completed a cycle, counted from no
            earlier than the broker can be reached.
        unserved: those of them that no fetcher has looked at since the connection was made.
        longest_call_s: how old the oldest running batch or portion is.
    """

    starting: str = ""
    broken: str = ""
    draining: bool = False
    dead_threads: tuple[str, ...] = ()
    loop_silent_s: float = 0.0
    is_connected: bool = True
    unheard_s: float = 0.0
    unfetched_s: Mapping[str, float] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()
    longest_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is too long. Seconds.

    Attributes:
        call_s: a batch: its time limit and the grace after it.
        broker_s: without an answer of the broker: a lease, by then others have what this worker held.
        fetch_s: without a completed cycle of a fetcher.
        loop_s: without a turn of the event loop.
    """

    call_s: float
    broker_s: float
    fetch_s: float = FETCH_S
    loop_s: float = LOOP_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all is well, and if not, why: one sentence a reason."""

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing to say."""
        return not self.reasons


def live(facts: Facts, limits: Limits) -> Verdict:
    """Return whether the worker should be left alone."""
    if facts.broken:
        return Verdict((facts.broken,))
    if facts.starting:
        return Verdict()  # for as long as the start takes: a model may be large
    reasons = []
    if facts.longest_call_s > limits.call_s + MARGIN_S:
        reasons.append(f"a batch has run for {facts.longest_call_s:.0f} s")
    if not facts.draining:  # its threads end then, one by one, within its drain timeout
        reasons += _halted(facts, limits)
    return Verdict(tuple(reasons))


def ready(facts: Facts, limits: Limits) -> Verdict:
    """Return whether the worker takes messages."""
    if facts.starting:
        return Verdict((f"starting: {facts.starting}",))
    reasons = list(live(facts, limits).reasons)
    if facts.draining:
        reasons.append("draining: it was told to stop")
    elif not facts.is_connected:
        reasons.append("it is not connected to the broker")
    elif facts.unheard_s > limits.broker_s:
        reasons.append(f"the broker has not answered for {facts.unheard_s:.0f} s")
    else:
        reasons += [f"has not begun to consume {queue}" for queue in facts.unserved]
    return Verdict(tuple(reasons))


def _halted(facts: Facts, limits: Limits) -> list[str]:
    reasons = [f"thread {name} has ended" for name in facts.dead_threads]
    if facts.loop_silent_s > limits.loop_s:
        reasons.append(f"the event loop has not turned for {facts.loop_silent_s:.0f} s")
    if facts.is_connected and facts.unheard_s <= limits.broker_s:
        reasons += [
            f"nothing has fetched from {queue} for {silent_s:.0f} s"
            for queue, silent_s in facts.unfetched_s.items()
            if silent_s > limits.fetch_s
        ]
    return reasons
