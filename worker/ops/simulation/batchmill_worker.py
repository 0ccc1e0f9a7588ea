"""Our worker in a simulated pod: a few messages at a time, in turns, handed back when it must go."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.ops.simulation.traces import BANDS
from worker.ops.simulation.workers import NEVER_S, Left, Work

if TYPE_CHECKING:
    from worker.ops.simulation.traces import Messages
    from worker.ops.simulation.workers import Worker


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

    So do turns between jobs, batch by batch, if a batch is short. Each band has a clock that runs by the work done for
    each of its messages; a message ends when that clock shows its start plus its work.
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
        """Return the number of held messages: who is free blocks on the list first."""
        return self._held

    def has_room(self) -> bool:
        """Say whether it takes another: a few large ones, or while it holds little work."""
        held, settings = self._held, self._settings
        if self._stopping or held >= settings.most:
            return False
        return held < settings.few or self._left_s < settings.credit_s

    def take(self, message: int, now_s: float) -> None:
        """Hold a message, which others that are held make way for."""
        self._run_to(now_s)
        messages = self._messages
        band, service_s = messages.bands[message], messages.services_s[message]
        heapq.heappush(self._bands[band], (self._clocks[band] + service_s, message))
        self._density[band] += messages.densities[message]
        self._held += 1
        self._left_s += service_s
        self._set_speed()

    def next_end_s(self) -> float:
        """Return when the next message ends if nothing comes between; `NEVER_S` if none does."""
        band = self._active()
        if band is None:
            return NEVER_S
        held = self._bands[band]
        return self._at_s + max(0.0, held[0][0] - self._clocks[band]) * len(held) / self._speed

    def advance(self, now_s: float) -> list[int]:
        """Work until now; return the messages that have ended."""
        self._run_to(now_s)
        band = self._active()
        if band is None:
            return []
        ended: list[int] = []
        held, by_now = self._bands[band], self._clocks[band] + 1e-9
        while held and held[0][0] <= by_now:
            message = heapq.heappop(held)[1]
            self._density[band] -= self._messages.densities[message]
            ended.append(message)
        if ended:
            self._held -= len(ended)
            self._left_s = max(0.0, self._left_s) if self._held else 0.0
            self._set_speed()
        return ended

    def stop(self, now_s: float) -> float:
        """Take no more; return when the process has ended at the latest."""
        self._stopping = True
        return now_s + self._settings.batch_s

    def is_drained(self) -> bool:
        """Say whether nothing is left to do."""
        return not self._held

    def leave(self, now_s: float, *, killed: bool) -> Left:  # noqa: ARG002 - the protocol's
        """Hand everything back, at once or after the lease."""
        delay_s = self._settings.redelivery_s if killed else 0.0
        held = sorted(message for band in self._bands for _, message in band)
        return Left(back=[(message, delay_s) for message in reversed(held)])

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
