"""A rolling update under load, with the probes and the grace of the chart, loses nothing and kills nobody."""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from schemas.names import QUEUE_CLASSIFY
from tests.chart.rendering import case, rendered, workers
from tests.faults.rollout import Deployment, Template
from tests.services import WorkerProcess
from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.trial import Trial

REPLICAS: Final = 2
PER_S: Final = 20
"""Messages a second, each of a batch that takes 300 ms: every pod has some in inference and more in hand."""


@pytest.fixture(scope="module")
def template() -> Template:
    """What the chart says of the workers of `classify` where nobody says otherwise.

    Helm is downloaded once, 60 MB, if `make chart` has not; where that cannot be, CI fails and others skip.
    """
    try:
        documents = rendered(case("minimal"))
    except ConfigError as error:
        if "cannot download" in str(error) and not os.environ.get("CI"):
            pytest.skip(f"Helm: {error}")
        raise
    return Template.of(dict(workers(documents))[QUEUE_CLASSIFY], REPLICAS)


@pytest.fixture
def start(trial: Trial, tiny_model: Path, tmp_path: Path) -> Callable[..., WorkerProcess]:
    """Start a worker that keeps the trial's journal."""
    numbers = count()
    command = [sys.executable, "-m", "tests.faults.shifted", "0", "tests.faults.models", str(trial.fleet.journal_path)]

    def start(**settings: object) -> WorkerProcess:
        name = f"pod-{next(numbers)}"
        log = tmp_path / f"{name}.log"
        options = {"worker_name": f"{name}@%h", "max_batch_size": 4, **settings}
        return WorkerProcess(trial.server.url, tiny_model, log, command, **options)

    return start


@pytest.mark.timeout(600)
@pytest.mark.fault("rolling-update-of-the-chart")
def test_a_rolling_update_with_the_charts_probes_and_grace_loses_nothing_and_kills_nobody(
    trial: Trial, start: Callable[..., WorkerProcess], template: Template
) -> None:
    with Deployment(template, start) as deployment:
        with trial.trickle(PER_S, "sleep300"):
            for _ in range(trial.pick(short=1, full=3)):
                deployment.update()
        account = trial.account()  # while there are pods: what was handed back last needs them

    account.assert_clean()
    assert [pod.exit_code for pod in deployment.ended] == [0] * len(deployment.ended)
    assert sum(pod.restarts for pod in deployment.ended) == 0
    assert set(map(trial.runs().get, trial.books.texts)) == {1}
