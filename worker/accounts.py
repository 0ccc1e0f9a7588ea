"""Adds up what a commit has recorded: ends of messages, outcomes of their items, and what they took.

Only what is recorded counts, so over all workers every message counts once, however often it was run. Called once a
group; a job of the group costs a few list operations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from celery import states

from worker.metrics import (
    BATCH_ITEMS,
    BULK_ROWS,
    BUSY,
    DEAD_LETTERS,
    HELD,
    ITEMS,
    JOBS,
    LABELS,
    LEASE_RENEWALS,
    MODEL_INFO,
    OK,
    PADDED_UNITS,
    PIXELS,
    REAL_UNITS,
    REDELIVERIES,
    REFUSED,
    RENEWALS,
    ROWS,
    RUNNERS,
    STAGE,
    STAGES,
    STATES,
    TOKENS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.custody import Custody
    from worker.engine import Engine
    from worker.jobs import Charge, Job, Pipeline
    from worker.metering import Meter
    from worker.metrics import Metric
    from worker.slots import Slot
    from worker.tallies import Labels, Tallies

_ENDS: Final = {
    states.SUCCESS: "succeeded",
    states.FAILURE: "failed",
    states.REVOKED: "cancelled",
    states.IGNORED: "cancelled",  # by the task itself, once it hears of it
}  # of those that are missing the message goes on: a retry, or one that Celery keeps


@dataclass(slots=True)
class _Alike:
    """Messages of one task, charge, state and lane: how many, and what they came to."""

    messages: int = 0
    outcomes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    tokens: int = 0
    pixels: int = 0


class _Key(NamedTuple):
    task: str
    charge: Charge
    state: str
    lane: str


class Accounts:
    """The accounts of one worker. For the finisher's thread alone.

    Args:
        tallies: where it is counted.
        meter: where it is noted what the messages took.
    """

    def __init__(self, tallies: Tallies, meter: Meter) -> None:
        self._tallies = tallies
        self._meter = meter
        self._group: dict[_Key, _Alike] = {}

    def job(self, task: str, state: str, job: Job) -> None:
        """Take a batched message into the group."""
        alike = self._alike(task, job.charge, state, job.items[0].lane if job.outcomes else "")
        alike.outcomes += job.outcomes
        alike.labels += job.labels
        alike.tokens += job.tokens
        alike.pixels += job.pixels

    def slot(self, task: str, state: str, slot: Slot, slots: int) -> None:
        """Take a message into the group that ran outside the batcher, on one of so many threads."""
        self._alike(task, slot.charge, state, "")
        self._meter.vacated(slot, slots, messages=int(state in _ENDS))

    def record(self, finisher_s: float, commit_s: float) -> None:
        """Count the group and begin another.

        Args:
            finisher_s: what tracing and committing it took.
            commit_s: what of that was the commit.
        """
        group, self._group = self._group, {}
        amounts = [amount for key, alike in group.items() for amount in _amounts(key, alike)]
        self._tallies.note(amounts, [(STAGE, ("commit",), commit_s)])
        messages = sum(alike.messages for alike in group.values())
        for key, alike in group.items():
            self._meter.committed(key.charge, finisher_s * alike.messages / messages)

    def _alike(self, task: str, charge: Charge, state: str, lane: str) -> _Alike:
        key = _Key(task, charge, state, lane)
        alike = self._group.get(key)
        if alike is None:
            alike = self._group[key] = _Alike()
        alike.messages += 1
        return alike


def _amounts(key: _Key, alike: _Alike) -> Iterator[tuple[Metric, Labels, float]]:
    """Yield what to add to which counter."""
    end = _ENDS.get(key.state)
    if end is not None:
        yield JOBS, (key.task, end), alike.messages
    for outcome, count in Counter(alike.outcomes).items():
        yield ITEMS, (key.task, outcome), count
    for label, count in Counter(alike.labels).items():
        yield LABELS, (key.lane, label), count
    for metric, units in ((TOKENS, alike.tokens), (PIXELS, alike.pixels)):
        if units:
            yield metric, (key.task,), units


def begin(
    tallies: Tallies, engine: Engine, custody: Custody, *, tasks: Sequence[str], batched: Mapping[str, Pipeline]
) -> None:
    """Publish what is known without counting, and let the series exist whose labels are: a rate needs a first value.

    Args:
        tallies: of the worker.
        engine: what it runs.
        custody: what it holds.
        tasks: the names of its tasks.
        batched: those of them that the engine runs, with what understands them.
    """
    queues, lanes = custody.ledger.queues, [lane.model.name for lane in engine.lanes.values()]
    tallies.watch(RUNNERS, lambda: {(): engine.runners})
    tallies.watch(MODEL_INFO, lambda: dict.fromkeys(_models(engine), 1))
    tallies.watch(HELD, lambda: {(queue,): custody.held_of(queue) for queue in custody.ledger.queues})
    tallies.add(
        *((JOBS, (task, end), 0) for task in (*tasks, REFUSED) for end in STATES),
        *((pipeline.reads, (task,), 0) for task, pipeline in batched.items()),
        *((ITEMS, (task, OK), 0) for task in batched),
        *((metric, (lane,), 0) for metric in (REAL_UNITS, PADDED_UNITS, BUSY) for lane in lanes),
        *((BULK_ROWS, (outcome,), 0) for outcome in ROWS),
        *((LEASE_RENEWALS, (result,), 0) for result in RENEWALS),
        *((metric, (queue,), 0) for metric in (REDELIVERIES, DEAD_LETTERS) for queue in queues),
    )
    for stage in STAGES:
        tallies.observe(STAGE, (stage,), ())
    for lane in lanes:
        tallies.observe(BATCH_ITEMS, (lane,), ())


def _models(engine: Engine) -> set[tuple[str, ...]]:
    """Return the label values of `MODEL_INFO` for each model; the lanes of documents share one."""
    fields = ("name", *MODEL_INFO.labels[1:])
    return {tuple(lane.model.info.get(field, "") for field in fields) for lane in engine.lanes.values()}
