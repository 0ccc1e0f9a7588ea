"""What one pod does with messages: a batchmill worker, and a stock Celery worker.

Both are servers of one unit of work a second. They know the clock only as an argument, and neither queue nor autoscaler.
A message is its number in the messages.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from worker.ops.simulation.traces import BANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.ops.simulation.traces import Messages

NEVER_S: Final = math.inf


@dataclass(slots=True)
class Work:
    """What a pod got done since it was last asked.

    Attributes:
        busy_s: by band.
        units: that were worked through.
        ended: messages.
    """

    busy_s: list[float] = field(default_factory=lambda: [0.0] * BANDS)
    units: float = 0.0
    ended: int = 0


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

    def held_by_band(self) -> list[int]:
        """Return the number of held messages for each band."""


@dataclass(frozen=True, slots=True)
class BatchmillWorker:
    """The settings of our worker; see docs/configuration.md.

    Attributes:
        few: messages that it takes however large they are.
        most: messages that it holds at most.
        credit_s: of its own work that it fetches ahead beyond `few`.
        gains: messages held, and the throughput over that of one alone; steps, ascending.
        redelivery_s: from a kill until its messages wait again: at most a lease of 12 s and
            a second until the next sweep.
        batch_s: how long running batches take to end after SIGTERM.
    """

    few: int = 8
    most: int = 256
    credit_s: float = 1.0
    gains: tuple[tuple[int, float], ...] = ((1, 1.0),)
    redelivery_s: float = 13.0
    batch_s: float = 0.5

    def start(self, messages: Messages) -> Worker:
        """Return a worker that is ready."""
        return SharingWorker(self, messages)


class SharingWorker:
    """Works on all messages that it holds at once, those of the most urgent band first, each at an equal share.

    So do turns between jobs, batch by batch, if a batch is short. Each band has a clock of its own that runs by the work
    done for each of its messages; a message ends when that clock shows its start plus its work.
    """

    def __init__(self, settings: BatchmillWorker, messages: Messages) -> None:
        self.work = Work()
        self._settings = settings
        self._messages = messages
        self._bands: list[list[tuple[float, int]]] = [[] for _ in range(BANDS)]
        self._clocks = [0.0] * BANDS
        self._density = [0.0] * BANDS  # Σ units for each second of service
        self._held = 0
        self._left_s = 0.0
        self._speed = 1.0
        self._at_s = 0.0
        self._stopping = False

    def __len__(self) -> int:
        return self._held

    def turn(self) -> float:
        return self._held

    def has_room(self) -> bool:
        held, settings = self._held, self._settings
        if self._stopping or held >= settings.most:
            return False
        return held < settings.few or self._left_s < settings.credit_s

    def take(self, message: int, now_s: float) -> None:
        self._run_to(now_s)
        messages = self._messages
        band, service_s = messages.bands[message], messages.services_s[message]
        heapq.heappush(self._bands[band], (self._clocks[band] + service_s, message))
        self._density[band] += messages.densities[message]
        self._held += 1
        self._left_s += service_s
        self._set_speed()

    def next_end_s(self) -> float:
        band = self._active()
        if band is None:
            return NEVER_S
        held = self._bands[band]
        return self._at_s + max(0.0, held[0][0] - self._clocks[band]) * len(held) / self._speed

    def advance(self, now_s: float) -> list[int]:
        self._run_to(now_s)
        band, ended = self._active(), []
        if band is None:
            return ended
        held, by_now = self._bands[band], self._clocks[band] + 1e-9
        while held and held[0][0] <= by_now:
            message = heapq.heappop(held)[1]
            self._density[band] -= self._messages.densities[message]
            ended.append(message)
        if ended:
            self._held -= len(ended)
            self.work.ended += len(ended)
            self._left_s = max(0.0, self._left_s) if self._held else 0.0
            self._set_speed()
        return ended

    def stop(self, now_s: float) -> float:
        self._stopping = True
        return now_s + self._settings.batch_s

    def is_drained(self) -> bool:
        return not self._held

    def leave(self, now_s: float, *, killed: bool) -> Left:
        delay_s = self._settings.redelivery_s if killed else 0.0
        held = sorted(message for band in self._bands for _, message in band)
        return Left(back=[(message, delay_s) for message in reversed(held)])

    def held_by_band(self) -> list[int]:
        return [len(band) for band in self._bands]

    def _active(self) -> int | None:
        for band, held in enumerate(self._bands):
            if held:
                return band
        return None

    def _set_speed(self) -> None:
        self._speed = 1.0
        for held, gain in self._settings.gains:
            if self._held < held:
                break
            self._speed = gain

    def _run_to(self, now_s: float) -> None:
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        band = self._active()
        if band is None or elapsed_s <= 0:
            return
        done_s = elapsed_s * self._speed
        each_s = done_s / len(self._bands[band])
        self._clocks[band] += each_s
        self._left_s -= done_s
        self.work.busy_s[band] += elapsed_s
        self.work.units += each_s * self._density[band]


@dataclass(frozen=True, slots=True)
class CeleryWorker:
    """The settings of a stock prefork worker on Redis; the defaults are Celery's, for a pod of one CPU.

    Attributes:
        concurrency: child processes; each runs one message, at its share of the pod.
        prefetch_multiplier: reserved messages for each of them.
        acks_late: a message is acknowledged when it ends, not when it starts.
        visibility_s: after this an unacknowledged message waits again.
        grace_s: from SIGTERM to SIGKILL; the default is Kubernetes'.
    """

    concurrency: int = 1
    prefetch_multiplier: int = 4
    acks_late: bool = False
    visibility_s: float = 3600.0
    grace_s: float = 30.0

    def start(self, messages: Messages) -> Worker:
        """Return a worker that is ready."""
        return PrefetchingWorker(self, messages)


class PrefetchingWorker:
    """Reserves messages beside those that run, in order of arrival, and gives none of them up while it lives."""

    def __init__(self, settings: CeleryWorker, messages: Messages) -> None:
        self.work = Work()
        self._settings = settings
        self._messages = messages
        self._running: list[tuple[float, int]] = []  # ends at, message
        self._reserved: deque[int] = deque()
        self._taken_s: dict[int, float] = {}
        self._at_s = 0.0
        self._turn_s = 0.0
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running) + len(self._reserved)

    def turn(self) -> float:
        return self._turn_s  # blocked clients are served in turn, however much they hold

    def has_room(self) -> bool:
        settings = self._settings
        unacknowledged = len(self._reserved) + (len(self._running) if settings.acks_late else 0)
        room = settings.concurrency * settings.prefetch_multiplier - unacknowledged
        return not self._stopping and (room > 0 or len(self._running) < settings.concurrency)

    def take(self, message: int, now_s: float) -> None:
        self._turn_s = self._taken_s[message] = now_s
        self._reserved.append(message)
        self._fill(now_s)

    def next_end_s(self) -> float:
        return self._running[0][0] if self._running else NEVER_S

    def advance(self, now_s: float) -> list[int]:
        ended = []
        self._count(now_s)
        while self._running and self._running[0][0] <= now_s + 1e-9:
            message = heapq.heappop(self._running)[1]
            del self._taken_s[message]
            ended.append(message)
        self.work.ended += len(ended)
        if not self._stopping:
            self._fill(now_s)
        return ended

    def stop(self, now_s: float) -> float:
        self._stopping = True
        return now_s + self._settings.grace_s

    def is_drained(self) -> bool:
        return not self._running

    def leave(self, now_s: float, *, killed: bool) -> Left:
        # A warm shutdown restores what is reserved when it ends; a process that is killed before that restores nothing.
        restored = not killed and not self._running
        back = [(message, 0.0 if restored else self._redelivery_s(message, now_s)) for message in self._reserved]
        running = [message for _, message in self._running]
        if not self._settings.acks_late:
            return Left(back=back[::-1], lost=running)
        return Left(back=(back + [(message, self._redelivery_s(message, now_s)) for message in running])[::-1])

    def held_by_band(self) -> list[int]:
        counts = [0] * BANDS
        for message in self._taken_s:
            counts[self._messages.bands[message]] += 1
        return counts

    def _redelivery_s(self, message: int, now_s: float) -> float:
        return max(0.0, self._taken_s[message] + self._settings.visibility_s - now_s)

    def _fill(self, now_s: float) -> None:
        self._count(now_s)
        while self._reserved and len(self._running) < self._settings.concurrency:
            message = self._reserved.popleft()
            ends_s = now_s + self._messages.services_s[message] * self._settings.concurrency
            heapq.heappush(self._running, (ends_s, message))

    def _count(self, now_s: float) -> None:
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        share = elapsed_s / self._settings.concurrency
        for _, message in self._running:
            self.work.busy_s[self._messages.bands[message]] += share
            self.work.units += share * self._messages.densities[message]
