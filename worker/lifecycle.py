"""Load, warm, build: from settings to an engine that is ready for its first message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery

from worker.batching import BatchPolicy
from worker.engine import Engine, Lane
from worker.models.cpu import available_cpus
from worker.models.warmup import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.engine import Listener
    from worker.jobs import Model, Pipeline
    from worker.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a worker serves.

    Attributes:
        models: by lane name.
        pipelines: by task name.
    """

    models: Mapping[str, Model]
    pipelines: Mapping[str, Pipeline]


class BatchApp(Celery):  # type: ignore[misc] # celery has no types
    """A Celery application that knows how to build its engine."""

    task_cls = "worker.task:PrivateTask"

    def __init__(
        self,
        main: str,
        *,
        settings: Settings,
        load: Callable[[Settings], Workload],
        **options: Any,  # noqa: ANN401 - Celery's own signature
    ) -> None:
        super().__init__(main, **options)
        self.settings = settings
        self.load = load

    def build_engine(self, listener: Listener) -> tuple[Mapping[str, Pipeline], Engine]:
        """Load and warm the models; return the pipelines by task name and the engine, not started yet.

        Raises:
            ConfigError: a model or an execution provider is missing.
        """
        workload = self.load(self.settings)
        return workload.pipelines, build_engine(workload, listener, self.settings)


def build_engine(workload: Workload, listener: Listener, settings: Settings) -> Engine:
    """Warm every model over the shapes that its batches can have, calibrate its policy, and build the engine."""
    policy = BatchPolicy(
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
        max_queue_delay_s=settings.max_queue_delay_s,
        planning_window=settings.planning_window,
        ageing_s=settings.ageing_s,
    )
    return Engine(
        {name: Lane(model, _calibrated(model, policy)) for name, model in workload.models.items()},
        listener,
        runners=settings.runners or available_cpus(),
        batch_timeout_s=settings.batch_timeout_s,
        stuck_grace_s=settings.stuck_grace_s,
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
