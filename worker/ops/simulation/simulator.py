"""The event loop: messages arrive, pods come, work and go, an autoscaler looks every few seconds.

Deterministic by trace, policy and seed. The simulation starts with the fewest replicas, ready, and with the rate that a
day like this one would have left in the broker. It ends when the trace says so.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from worker.loads import NO_LOAD, Load
from worker.ops.simulation.autoscaler import Autoscaler
from worker.ops.simulation.outcome import Run
from worker.ops.simulation.queue import Queue
from worker.ops.simulation.shared_rate import LATELY, Lately, SharedRate
from worker.ops.simulation.signals import Gauges
from worker.ops.simulation.telling import RENEW_S, Teller
from worker.ops.simulation.traces import BANDS

if TYPE_CHECKING:
    from worker.ops.simulation.policies import Policy, Surroundings
    from worker.ops.simulation.traces import Trace
    from worker.ops.simulation.workers import Left, Worker

DRAWS: Final = 4096  # random numbers of each kind; pods beyond that use them again


class _State(Enum):
    STARTING = 1
    READY = 2
    STOPPING = 3
    GONE = 4


class _What(IntEnum):
    """Kinds of events, in the order in which those of one moment happen."""

    END = 0
    DRAINED = 1
    KILLED = 2
    READY = 3
    BACK = 4
    RENEW = 5


@dataclass(slots=True, eq=False)
class _Pod:
    """A pod; `load` is what it told last, `plan` numbers the last plan of its next end: older ones are stale."""

    worker: Worker
    teller: Teller
    created_s: float
    state: _State = _State.STARTING
    load: Load = NO_LOAD
    plan: int = 0


class Simulation:
    """One policy over one trace. Use it once.

    Args:
        trace: what arrives.
        policy: who competes.
        surroundings: of all policies.
        seed: of what happens to pods: how slowly they start, when they are killed.
    """

    def __init__(self, trace: Trace, policy: Policy, surroundings: Surroundings, seed: int = 0) -> None:
        self._trace = trace
        self._messages = trace.messages()
        self._policy = policy
        self._autoscaler = Autoscaler(policy.scaling)
        self._queue = Queue(has_bands=policy.has_bands)
        self._gauges = Gauges()
        self._rate = _usual_rate(trace)
        self._events: list[tuple[float, int, int, _Pod | int, int]] = []
        self._order = count()
        self._pods: list[_Pod] = []
        self._ready: list[_Pod] = []
        self._in_limbo = 0  # held by nobody alive, and not given back yet
        self._wait_s = np.full(len(trace), np.inf).tolist()
        self._lost = self._redeliveries = self._created = 0
        self._pod_s = 0.0
        self._replicas = 0
        self._changes: list[tuple[float, int]] = []
        rng = np.random.default_rng(seed)
        spread = surroundings.start_jitter
        self._starts_s = (surroundings.start_s * rng.lognormal(-(spread**2) / 2, spread, DRAWS)).tolist()
        rate = surroundings.kills_per_hour / 3600
        self._lives_s = (rng.exponential(1 / rate, DRAWS) if rate else np.full(DRAWS, np.inf)).tolist()

    def run(self) -> Run:
        """Simulate the trace."""
        self._scale(0.0, self._policy.scaling.min_replicas, start_s=0.0)
        scaling, arrivals_s = self._policy.scaling, [*self._messages.arrivals_s, math.inf]
        decide_s, poll_s, message = scaling.sync_s, scaling.polling_s, 0
        while True:
            event_s = self._events[0][0] if self._events else math.inf
            now_s = min(event_s, arrivals_s[message], decide_s, poll_s)
            if now_s > self._trace.end_s:
                return self._ended()
            if event_s == now_s:
                self._happen(heapq.heappop(self._events))
            elif arrivals_s[message] == now_s:
                self._arrive(message, now_s)
                message += 1
            elif poll_s == now_s:
                self._scale(now_s, self._autoscaler.wake(now_s, self._metric(), self._replicas))
                poll_s += scaling.polling_s
            else:
                self._scale(now_s, self._autoscaler.decide(now_s, self._metric(), self._replicas))
                decide_s += scaling.sync_s

    def _ended(self) -> Run:
        for pod in self._pods:
            self._pod_s += self._trace.end_s - pod.created_s
        return Run(np.array(self._wait_s), self._lost, self._redeliveries, self._pod_s, self._changes)

    # Messages.

    def _arrive(self, message: int, now_s: float) -> None:
        band = self._messages.bands[message]
        self._gauges.waiting[band] += 1
        nobody_had_room = len(self._queue) > 0
        self._queue.put(message, band)
        if not nobody_had_room:
            self._hand_out(now_s)

    def _hand_out(self, now_s: float) -> None:
        """Give what waits to the workers with room."""
        while len(self._queue):
            takers = [pod for pod in self._ready if pod.worker.has_room()]
            if not takers:
                return
            self._give(min(takers, key=_turn), now_s)

    def _give(self, pod: _Pod, now_s: float) -> None:
        message = self._queue.pop()
        self._gauges.waiting[self._messages.bands[message]] -= 1
        pod.teller.opened(self._messages.bands[message], self._messages.units[message])
        self._end(pod, now_s)
        pod.worker.take(message, now_s)
        self._plan(pod)

    def _end(self, pod: _Pod, now_s: float) -> None:
        """Let a pod work until now, and record what it has ended."""
        messages = self._messages
        for message in pod.worker.advance(now_s):
            wait_s = now_s - messages.arrivals_s[message] - messages.services_s[message]
            self._wait_s[message] = max(0.0, wait_s)

    def _plan(self, pod: _Pod) -> None:
        """Expect a pod's next end; what was expected before is void."""
        pod.plan += 1
        at_s = pod.worker.next_end_s()
        if at_s < math.inf:
            self._put(at_s, _What.END, pod, pod.plan)

    # Events.

    def _put(self, at_s: float, what: _What, about: _Pod | int, plan: int = 0) -> None:
        heapq.heappush(self._events, (at_s, what << 40 | next(self._order), what, about, plan))

    def _happen(self, event: tuple[float, int, int, _Pod | int, int]) -> None:
        now_s, _, what, about, plan = event
        if isinstance(about, int):
            self._come_back(about, now_s)
        elif what == _What.END:
            if plan == about.plan:
                self._work_on(about, now_s)
        elif about.state is _State.GONE:
            return
        elif what == _What.RENEW:
            self._renew(about, now_s)
        elif what == _What.READY:
            if about.state is _State.STARTING:
                about.state = _State.READY
                self._ready.append(about)
                self._renew(about, now_s)
                self._hand_out(now_s)
        else:
            self._leave(about, now_s, killed=what == _What.KILLED)

    def _come_back(self, message: int, now_s: float) -> None:
        self._in_limbo -= 1
        self._put_back(message)
        self._hand_out(now_s)

    def _put_back(self, message: int) -> None:
        band = self._messages.bands[message]
        self._gauges.waiting[band] += 1
        self._queue.put_back(message, band)

    def _work_on(self, pod: _Pod, now_s: float) -> None:
        self._end(pod, now_s)
        self._plan(pod)
        if pod.state is _State.STOPPING and pod.worker.is_drained():
            self._leave(pod, now_s, killed=False)
            return
        while pod.state is _State.READY and len(self._queue) and pod.worker.has_room():
            self._give(pod, now_s)

    def _leave(self, pod: _Pod, now_s: float, *, killed: bool) -> None:
        """End a pod's process; one that was not to end is replaced."""
        self._end(pod, now_s)
        was_wanted = pod.state in (_State.STARTING, _State.READY)
        self._take_away(pod)
        pod.plan += 1
        self._pods.remove(pod)
        self._pod_s += now_s - pod.created_s
        self._return(pod.worker.leave(now_s, killed=killed), now_s)
        if was_wanted:
            self._create(now_s)
        self._hand_out(now_s)

    def _return(self, left: Left, now_s: float) -> None:
        self._lost += len(left.lost)
        self._redeliveries += len(left.back)
        for message, delay_s in left.back:
            if delay_s > 0:
                self._in_limbo += 1
                self._put(now_s + delay_s, _What.BACK, message)
            else:
                self._put_back(message)

    # Pods.

    def _renew(self, pod: _Pod, now_s: float) -> None:
        """Let a pod tell what it has measured, if anybody wants to know; a stopping one has nothing more to say."""
        if pod.state is not _State.READY or not self._policy.signal.asks_workers:
            return
        self._end(pod, now_s)
        pod.load, news = pod.teller.renewal(pod.worker.work, now_s)
        self._rate.learn(news)
        self._put(now_s + RENEW_S, _What.RENEW, pod)

    def _metric(self) -> float:
        gauges = self._gauges
        gauges.in_flight = sum(len(pod.worker) for pod in self._pods) + self._in_limbo
        gauges.workers = len(self._ready)
        gauges.rate, gauges.sizes = self._rate.messages_per_s, self._rate.sizes
        gauges.load = [sum(loads) for loads in zip(*(pod.load for pod in self._ready), strict=True)] or NO_LOAD
        return self._policy.signal.value(self._gauges, self._policy.scaling.target)

    def _scale(self, now_s: float, replicas: int, start_s: float | None = None) -> None:
        """Create pods, or stop those that have lived the shortest, before all those that are not ready."""
        if replicas != self._replicas or not self._changes:
            self._changes.append((now_s, replicas))
        for _ in range(replicas - self._replicas):
            self._create(now_s, start_s)
        if replicas < self._replicas:
            alive = [pod for pod in self._pods if pod.state in (_State.READY, _State.STARTING)]
            alive.sort(key=lambda pod: (pod.state is _State.READY, -pod.created_s))
            for pod in alive[: self._replicas - replicas]:
                self._stop(pod, now_s)
        self._replicas = replicas

    def _create(self, now_s: float, start_s: float | None = None) -> None:
        number = self._created % DRAWS
        self._created += 1
        pod = _Pod(self._policy.worker.start(self._messages), Teller(now_s), now_s)
        self._pods.append(pod)
        ready_s = now_s + (self._starts_s[number] if start_s is None else start_s)
        self._put(ready_s, _What.READY, pod)
        self._put(ready_s + self._lives_s[number], _What.KILLED, pod)

    def _stop(self, pod: _Pod, now_s: float) -> None:
        self._take_away(pod)
        pod.state = _State.STOPPING
        self._put(pod.worker.stop(now_s), _What.DRAINED, pod)
        self._work_on(pod, now_s)

    def _take_away(self, pod: _Pod) -> None:
        if pod.state is _State.READY:
            self._ready.remove(pod)
        pod.state = _State.GONE


def _usual_rate(trace: Trace) -> SharedRate:
    """Return what a day like this one would have left in the broker."""
    bands = [trace.units[trace.band == band] for band in range(BANDS)]
    of_bands = [Lately(LATELY * float(units.mean()), LATELY) if len(units) else Lately() for units in bands]
    pace = float(trace.units.sum() / trace.service_s.sum())
    return SharedRate(pace, Lately(LATELY * float(trace.units.mean()), LATELY), of_bands)


def _turn(pod: _Pod) -> float:
    return pod.worker.turn()
