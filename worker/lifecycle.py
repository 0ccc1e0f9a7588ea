"""Load, warm, build: from settings to an engine that is ready for its first message."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery

from worker.credit import Credit, Room, Slots
from worker.custody import Custody
from worker.engine import Engine
from worker.incarnation import incarnation
from worker.lanes import Lane
from worker.ledger import Ledger, Terms
from worker.metering import Meter
from worker.models.cpu import available_cpus
from worker.models.warmup import warm_up
from worker.planner import BatchPolicy
from worker.tallies import Tallies
from worker.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.jobs import Model, Pipeline
    from worker.listening import Listener
    from worker.settings import Settings

log = structlog.get_logger(__name__)

CREDIT_MIN_ITEMS = 32


@dataclass(frozen=True, slots=True)
class Workload:
    """What a worker serves.

    Attributes:
        models: by lane name; warmed and calibrated before the first message.
        pipelines: by task name.
        lanes: by name, those that are warm and have their own policies already.
    """

    models: Mapping[str, Model]
    pipelines: Mapping[str, Pipeline]
    lanes: Mapping[str, Lane] = field(default_factory=dict)


class BatchApp(Celery):  # type: ignore[misc] # celery has no types
    """A Celery application that knows how to build its engine.

    Args:
        main: its name.
        settings: its options.
        load: loads what it serves.
        slots: by queue, for those whose messages take long: how many of them it holds at a time.
        message_bytes: by queue, for those whose messages may be larger than others'.
        options: Celery's own.

    Attributes:
        workload: what it serves, once the engine has been built.
        on_dead_letters: called, on a thread that may block, after messages went to the dead letters.
    """

    workload: Workload
    on_dead_letters: Callable[[], None]

    task_cls = "worker.task:PrivateTask"

    def __init__(
        self,
        main: str,
        *,
        settings: Settings,
        load: Callable[[Settings], Workload],
        slots: Mapping[str, int] | None = None,
        message_bytes: Mapping[str, int] | None = None,
        **options: Any,  # noqa: ANN401 - Celery's own signature
    ) -> None:
        super().__init__(main, **options)
        self.settings = settings
        self.load = load
        self.slots = slots or {}
        self._message_bytes = message_bytes or {}
        self.on_dead_letters = _nothing
        self.terms = Terms(
            lease_s=settings.lease_s, result_ttl_s=settings.result_ttl_s, max_crashes=settings.max_crashes
        )

    def uses_utc_timezone(self) -> bool:
        """Return True: Celery asks this of its settings for every message, and they take their time to answer."""
        return True

    def message_bytes_of(self, queue: str) -> int:
        """Return how large the body of a message on a queue may be."""
        return self._message_bytes.get(queue, self.settings.max_message_bytes)

    @cached_property
    def custody(self) -> Custody:
        """What this process holds."""
        return Custody(
            Ledger(self.backend.client, incarnation(self.settings.worker_name), self.settings.queues, self.terms)
        )

    @cached_property
    def room(self) -> Room:
        """How much more it takes."""
        settings = self.settings
        credit = Credit(
            self.custody,
            credit_s=settings.credit_s,
            min_items=min(CREDIT_MIN_ITEMS, settings.max_jobs_in_flight),
            max_items=settings.max_jobs_in_flight,
            max_bytes=settings.max_held_bytes,
        )
        slots = {queue: Slots(self.custody, queue, slots) for queue, slots in self.slots.items()}
        return Room(credit, slots, self.vitals)

    @cached_property
    def vitals(self) -> Vitals:
        """Its signs of life."""
        return Vitals(self.settings.queues, self.settings.lease_s)

    @cached_property
    def tallies(self) -> Tallies:
        """What it counts."""
        return Tallies()

    @cached_property
    def meter(self) -> Meter:
        """What it measures."""
        return Meter()

    def build_engine(self, listener: Listener) -> tuple[Mapping[str, Pipeline], Engine]:
        """Load and warm the models; return the pipelines by task name and the engine, not started yet.

        Raises:
            ConfigError: a model or an execution provider is missing.
        """
        self.workload = self.load(self.settings)
        self.vitals.starting = "it warms its models"
        return self.workload.pipelines, build_engine(self.workload, listener, self.settings, self.tallies, self.meter)


def build_engine(
    workload: Workload,
    listener: Listener,
    settings: Settings,
    tallies: Tallies | None = None,
    meter: Meter | None = None,
) -> Engine:
    """Warm every model over the shapes that its batches can have, calibrate its policy, and build the engine."""
    policy = BatchPolicy(
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
        max_queue_delay_s=settings.max_queue_delay_s,
        planning_window=settings.planning_window,
        ageing_s=settings.ageing_s,
    )
    return Engine(
        {name: Lane(model, _calibrated(model, policy)) for name, model in workload.models.items()}
        | dict(workload.lanes),
        listener,
        runners=settings.runners or available_cpus(),
        batch_timeout_s=settings.batch_timeout_s,
        stuck_grace_s=settings.stuck_grace_s,
        tallies=tallies,
        meter=meter,
    )


def _calibrated(model: Model, policy: BatchPolicy) -> BatchPolicy:
    calibration = warm_up(model, policy.max_batch_size, policy.max_batch_tokens)
    log.info(
        "model.warmed",
        model=model.name,
        call_cost_tokens=round(calibration.call_cost_tokens, 1),
        tokens_per_s=round(calibration.tokens_per_s),
        wall_s=round(calibration.wall_s, 3),
    )
    return replace(policy, call_cost_tokens=calibration.call_cost_tokens)


def _nothing() -> None:
    """Dead letters mean nothing to most applications."""
