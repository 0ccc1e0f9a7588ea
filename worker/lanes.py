"""The lanes of an engine: a batcher for each model, which of them is served next, and whom to wake.

Lanes share the runners unless they have threads of their own. Like the batchers it decides under the engine's lock, and
knows neither messages nor what a model does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from worker.batching import MicroBatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from worker.jobs import Item, Job, Model
    from worker.planner import Batch, BatchPolicy


@dataclass(frozen=True, slots=True)
class Lane:
    """A model, and how its batches are cut.

    Attributes:
        model: what runs.
        policy: the limits of a batch.
        depth: of the lanes that wait, the deeper goes first within a band: items spawn items for deeper lanes, and
            what has begun is ended before more is begun.
        spawns: whether `Pipeline.spawn` is asked about its outcomes.
        is_unit: whether the size of a message is counted in its items.
        threads: of its own, for what waits more than it works; 0 = the runners, which all such lanes share.
        waits_s: how long a call may wait for others, such as a store, beside the time that any call may take.
    """

    model: Model
    policy: BatchPolicy
    depth: int = 0
    spawns: bool = False
    is_unit: bool = True
    threads: int = 0
    waits_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a thread does next.

    Attributes:
        lane: of the batch; None = nothing now.
        batch: to run.
        dropped: jobs that nobody waits for any more; they have left every lane.
        wait_s: without a batch: when to ask again at the latest; None = once there is more.
    """

    lane: Lane | None = None
    batch: Batch | None = None
    dropped: tuple[Job, ...] = ()
    wait_s: float | None = None


class Lanes:
    """Where prepared items wait. Every call needs the lock held.

    Args:
        lanes: by name.
        lock: the engine's.
        is_cancelled: see `MicroBatcher`.
    """

    def __init__(self, lanes: Mapping[str, Lane], lock: threading.Lock, is_cancelled: Callable[[Job], bool]) -> None:
        self.by_name = dict(lanes)
        self._batchers = {name: MicroBatcher(lane.policy, monotonic, is_cancelled) for name, lane in lanes.items()}
        shared = threading.Condition(lock)
        # One for those that share their threads: whoever is woken can serve what it was woken for.
        self._more = {name: threading.Condition(lock) if lane.threads else shared for name, lane in lanes.items()}

    def backlog(self) -> int:
        """Return how many items on credit wait."""
        return sum(batcher.backlog() for batcher in self._batchers.values())

    def crews(self, runners: int) -> dict[str, tuple[str, ...]]:
        """Return the threads that serve the lanes: the names of the lanes by the name of the thread."""
        shared = tuple(name for name, lane in self.by_name.items() if not lane.threads)
        crews = {f"runner-{number}": shared for number in range(runners)}
        for name, lane in self.by_name.items():
            crews |= {f"{name}-{number}": (name,) for number in range(lane.threads)}
        return crews

    def add(self, items: Iterable[Item]) -> None:
        """Let prepared items wait for their batches."""
        touched = set()
        for item in items:
            self._batchers[item.lane].add((item,))
            touched.add(item.lane)
        for lane in touched:
            self._more[lane].notify()

    def add_planned(self, lane: str, batches: Sequence[Batch]) -> None:
        """Let batches wait that were planned beforehand."""
        self._batchers[lane].add_planned(batches)
        self._more[lane].notify()

    def discard(self, job: Job) -> None:
        """Forget what waits of a job."""
        for batcher in self._batchers.values():
            batcher.discard(job)

    def take(self, names: Sequence[str]) -> Turn:
        """Decide what a thread that serves these lanes does now."""
        dropped: list[Job] = []
        waits_s = []
        for name in sorted(names, key=self._rank) if len(names) > 1 else names:
            decision = self._batchers[name].take()
            for job in decision.dropped:
                self.discard(job)  # or the next lane would drop it once more
            dropped += decision.dropped
            if decision.batch is not None:
                self._more[name].notify()  # there may be a batch for another thread too
                return Turn(self.by_name[name], decision.batch, tuple(dropped))
            if decision.wait_s is not None:
                waits_s.append(decision.wait_s)
        return Turn(dropped=tuple(dropped), wait_s=min(waits_s, default=None))

    def wait(self, names: Sequence[str], seconds: float | None) -> None:
        """Wait until there may be more for these lanes, with the lock let go; None = for however long it takes."""
        self._more[names[0]].wait(seconds)

    def wake_all(self) -> None:
        """Let every thread that waits go on."""
        for more in self._more.values():
            more.notify_all()

    def _rank(self, name: str) -> tuple[float, int, float]:
        """Sort key of a lane, the first to serve first: by band, then the deepest, then the longest without a batch."""
        level, since_s = self._batchers[name].urgency()
        return level, -self.by_name[name].depth, since_s
