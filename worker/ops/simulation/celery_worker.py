"""A stock Celery worker in a simulated pod: it reserves, acknowledges early, and may take messages with it."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.ops.simulation.workers import NEVER_S, Left, Work

if TYPE_CHECKING:
    from worker.ops.simulation.traces import Messages
    from worker.ops.simulation.workers import Worker


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
        """Return when it last took a message: blocked clients are served in turn, however much they hold."""
        return self._turn_s

    def has_room(self) -> bool:
        """Say whether it reserves another."""
        settings = self._settings
        unacknowledged = len(self._reserved) + (len(self._running) if settings.acks_late else 0)
        room = settings.concurrency * settings.prefetch_multiplier - unacknowledged
        return not self._stopping and (room > 0 or len(self._running) < settings.concurrency)

    def take(self, message: int, now_s: float) -> None:
        """Reserve a message."""
        self._turn_s = self._taken_s[message] = now_s
        self._reserved.append(message)
        self._fill(now_s)

    def next_end_s(self) -> float:
        """Return when the next message ends if nothing comes between; `NEVER_S` if none does."""
        return self._running[0][0] if self._running else NEVER_S

    def advance(self, now_s: float) -> list[int]:
        """Work until now; return the messages that have ended."""
        ended = []
        self._count(now_s)
        while self._running and self._running[0][0] <= now_s + 1e-9:
            message = heapq.heappop(self._running)[1]
            del self._taken_s[message]
            ended.append(message)
        if not self._stopping:
            self._fill(now_s)
        return ended

    def stop(self, now_s: float) -> float:
        """Take no more; return when the process has ended at the latest."""
        self._stopping = True
        return now_s + self._settings.grace_s

    def is_drained(self) -> bool:
        """Say whether nothing is left to do."""
        return not self._running

    def leave(self, now_s: float, *, killed: bool) -> Left:
        """Lose or give back what is held."""
        # A warm shutdown restores what is reserved when it ends; a process that is killed before that restores nothing.
        restored = not killed and not self._running
        back = [(message, 0.0 if restored else self._redelivery_s(message, now_s)) for message in self._reserved]
        running = [message for _, message in self._running]
        if not self._settings.acks_late:
            return Left(back=back[::-1], lost=running)
        return Left(back=(back + [(message, self._redelivery_s(message, now_s)) for message in running])[::-1])

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
