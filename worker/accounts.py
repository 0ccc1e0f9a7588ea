"""Adds up what a commit has recorded: ends of messages, outcomes of their items, and what they took.

Only what is recorded counts, so over all workers every message counts once, however often it was run. Called once a
group; a job of the group costs a few list operations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

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
    from collections.abc import Sequence

    from worker.custody import Custody
    from worker.engine import Engine
    from worker.jobs import Job
    from worker.rates import ServiceRates
    from worker.slots import Slot
    from worker.tallies import Tallies

_ENDS: Final = {
    states.SUCCESS: "succeeded",
    states.FAILURE: "failed",
    states.REVOKED: "cancelled",
    states.IGNORED: "cancelled",  # by the task itself, once it hears of it
}


@dataclass(slots=True)
class _Queue:
    """What the messages of one queue came to."""

    ended: int = 0
    runner_s: float = 0.0
    slot_s: float = 0.0


@dataclass(slots=True)
class _Group:
    """What a group came to, by task, model and queue."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    labels: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    tokens: Counter[str] = field(default_factory=Counter)
    pixels: Counter[str] = field(default_factory=Counter)
    queues: defaultdict[str, _Queue] = field(default_factory=lambda: defaultdict(_Queue))
    messages: int = 0


class Accounts:
    """The accounts of one worker. `record` is for the finisher's thread alone.

    Args:
        tallies: where it is counted.
        rates: where it is noted what the messages took.
        runners: threads that run batches.
    """

    def __init__(self, tallies: Tallies, rates: ServiceRates, runners: int) -> None:
        self._tallies = tallies
        self._rates = rates
        self._runners = runners
        self._group = _Group()

    def job(self, task: str, queue: str, state: str, job: Job) -> None:
        """Take a batched message into the group."""
        group = self._group
        of_queue = self._end(task, queue, state)
        of_queue.runner_s += job.runner_s
        if job.outcomes:
            group.outcomes[task] += job.outcomes
            if job.labels:
                group.labels[job.items[0].lane] += job.labels
            if job.tokens:
                group.tokens[task] += job.tokens
            if job.pixels:
                group.pixels[task] += job.pixels

    def slot(self, task: str, queue: str, state: str, slot: Slot, slots: int) -> None:
        """Take a message into the group that ran outside the batcher, on one of so many threads."""
        of_queue = self._end(task, queue, state)
        of_queue.runner_s += slot.runner_s
        of_queue.slot_s += slot.work_s() / slots

    def record(self, finisher_s: float, commit_s: float) -> None:
        """Count the group and begin another.

        Args:
            finisher_s: what tracing and committing it took.
            commit_s: what of that was the commit.
        """
        group, self._group = self._group, _Group()
        amounts = (
            *((JOBS, end, count) for end, count in group.ends.items()),
            *(
                (ITEMS, (task, outcome), count)
                for task, found in group.outcomes.items()
                for outcome, count in Counter(found).items()
            ),
            *(
                (LABELS, (model, label), count)
                for model, found in group.labels.items()
                for label, count in Counter(found).items()
            ),
            *((TOKENS, (task,), count) for task, count in group.tokens.items()),
            *((PIXELS, (task,), count) for task, count in group.pixels.items()),
        )
        self._tallies.note(amounts, [(STAGE, ("commit",), commit_s)])
        for name, queue in group.queues.items():
            took = {
                "runners": queue.runner_s / self._runners,
                "finisher": finisher_s * queue.ended / max(group.messages, 1),
                "slots": queue.slot_s,
            }
            self._rates.note(name, queue.ended, took)

    def _end(self, task: str, queue: str, state: str) -> _Queue:
        group = self._group
        end = _ENDS.get(state)  # None: a retry, or a message that Celery keeps
        of_queue = group.queues[queue]
        if end is not None:
            group.ends[task, end] += 1
            group.messages += 1
            of_queue.ended += 1
        return of_queue


def begin(tallies: Tallies, engine: Engine, custody: Custody, *, tasks: Sequence[str], batched: Sequence[str]) -> None:
    """Publish what is known without counting, and let the series exist whose labels are: a rate needs a first value.

    Args:
        tallies: of the worker.
        engine: what it runs.
        custody: what it holds.
        tasks: the names of its tasks.
        batched: those of them that the engine runs.
    """
    queues, lanes = custody.ledger.queues, [lane.model.name for lane in engine.lanes.values()]
    tallies.watch(RUNNERS, lambda: {(): engine.runners})
    tallies.watch(MODEL_INFO, lambda: dict.fromkeys(_models(engine), 1))
    tallies.watch(HELD, lambda: {(queue,): custody.held_of(queue) for queue in custody.ledger.queues})
    tallies.add(
        *((JOBS, (task, end), 0) for task in (*tasks, REFUSED) for end in STATES),
        *((metric, (task,), 0) for metric in (TOKENS, PIXELS) for task in batched),
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
