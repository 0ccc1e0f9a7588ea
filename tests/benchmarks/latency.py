"""Latency under a light, steady load: a client that sends on schedule and hears of each result at once.

The clock of a job starts just before its message is sent and stops when the result's publication arrives,
which is how a stock Celery client learns of it. Sending never waits for a result, so a slow worker cannot
slow the schedule down.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.benchmarks.broker import RESULT_KEY, BenchError, Broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.contestants import Contestant
    from tests.benchmarks.workload import Ticket

RATE_PER_S = 20.0
LISTEN_S = 0.1
GRACE_S = 20.0


def paced(
    broker: Broker, contestant: Contestant, tickets: Sequence[Ticket], rate_per_s: float = RATE_PER_S
) -> list[float]:
    """Send one ticket every 1/`rate_per_s` s to the running contestant; the seconds that each job took.

    Raises:
        BenchError: results are missing 20 s after the last was sent.
    """
    ids, messages = broker.write(contestant.queue, contestant.task, [contestant.arguments(t) for t in tickets])
    listener = _Listener(broker, ids)
    sent_s: dict[str, float] = {}
    start_s = time.perf_counter()
    for index, (task_id, message) in enumerate(zip(ids, messages, strict=True)):
        time.sleep(max(0.0, start_s + index / rate_per_s - time.perf_counter()))
        sent_s[task_id] = time.perf_counter()
        broker.client.lpush(contestant.queue, message)
    arrived_s = listener.wait(GRACE_S)
    return [arrived_s[task_id] - sent_s[task_id] for task_id in ids]


class _Listener:
    """A thread that notes when each result is published."""

    def __init__(self, broker: Broker, ids: Sequence[str]) -> None:
        self._wanted = {f"{RESULT_KEY}{task_id}".encode(): task_id for task_id in ids}
        self._arrived_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._done = threading.Event()
        self._channel = broker.client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]  # redis-py
        self._channel.psubscribe(f"{RESULT_KEY}*")
        self._thread = threading.Thread(target=self._listen, name="latency-listener", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> dict[str, float]:
        complete = self._done.wait(timeout_s)
        self._stop.set()
        self._thread.join()
        self._channel.close()
        if not complete:
            message = f"{len(self._wanted) - len(self._arrived_s)} results were not published in time"
            raise BenchError(message)
        return self._arrived_s

    def _listen(self) -> None:
        while not self._stop.is_set():
            message = self._channel.get_message(timeout=LISTEN_S)
            if message and message["channel"] in self._wanted:
                self._arrived_s.setdefault(self._wanted[message["channel"]], time.perf_counter())
                if len(self._arrived_s) == len(self._wanted):
                    self._done.set()
