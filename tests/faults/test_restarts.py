"""Workers and servers are restarted on purpose: nothing is lost, blamed, or done again."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from schemas.names import QUEUE_CLASSIFY
from tests.faults.oracle import texts
from tests.services import producer, wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial

RESTARTS: Final = 5
DRAIN_S: Final = 5
STOPPED_WITHIN_S: Final = 5
pytestmark = pytest.mark.timeout(600)


@pytest.mark.fault("rolling-sigterm")
def test_five_rolling_restarts_lose_nothing_and_run_each_job_once(trial: Trial) -> None:
    names = ("a", "b", "c")[: trial.pick(short=2, full=3)]
    trial.fleet.start(*names, max_batch_size=4)

    with trial.trickle(10, "sleep300"):
        for number in range(trial.pick(short=RESTARTS, full=RESTARTS * len(names))):
            assert trial.fleet.replace(names[number % len(names)]) == 0

    trial.account().assert_clean()
    assert set(map(trial.runs().get, trial.books.texts)) == {1}


@pytest.mark.fault("rolling-sigterm-long-job")
def test_a_job_longer_than_every_drain_survives_five_restarts(trial: Trial) -> None:
    trial.fleet.start("a", drain_timeout_s=0.2)
    (long_job,) = trial.books.send(texts(1, "sleep4000"))
    others = trial.books.send(texts(20, "sleep5", seed=1))

    for restart in range(1, RESTARTS + 1):
        wait_until(lambda restart=restart: trial.runs_of(long_job) == restart, what="the long job runs again")  # type: ignore[misc]
        assert trial.fleet.replace("a") == 0

    trial.account().assert_clean()
    assert trial.runs_of(long_job) == RESTARTS + 1
    assert trial.rerun() == []
    assert len(others) == 20


@pytest.mark.fault("sigterm-plain-task")
def test_a_plain_task_that_ends_while_its_worker_drains_is_recorded_and_not_run_again(trial: Trial) -> None:
    trial.fleet.start("a")
    task_id = str(uuid4())
    with producer(trial.server.url) as app:
        sent = app.send_task("faults.nap", args=(task_id, 2), task_id=task_id, queue=QUEUE_CLASSIFY)
        wait_until(lambda: trial.runs_of(task_id), what="the task runs")
        assert trial.fleet.replace("a") == 0
        assert sent.get(timeout=20) is None

    trial.account().assert_clean()
    trial.figures.jobs += 1
    assert trial.runs_of(task_id) == 1


@pytest.mark.fault("sigquit")
def test_sigquit_hands_back_what_runs_and_blames_nothing(trial: Trial) -> None:
    trial.fleet.start("a", "b", max_batch_size=4)
    trial.books.send(texts(200, "sleep300"))  # some are left for a worker that takes long to start
    for name in ("a", "b", "a", "b"):
        wait_until(lambda name=name: trial.runs_on(name), what=f"{name} runs something")  # type: ignore[misc]
        trial.fleet.replace(name, signal.SIGQUIT)

    trial.account().assert_clean()
    assert trial.rerun() == []


@pytest.mark.fault("server-restarts")
def test_five_server_restarts_lose_nothing_and_rerun_nothing_finished(trial: Trial) -> None:
    """celery#8030: after a reconnect the worker is alive but does not consume."""
    trial.fleet.start("a", "b", max_batch_size=4)
    long_jobs = trial.books.send(texts(2, "sleep9000"))
    trial.books.send(texts(trial.pick(short=60, full=600), "sleep100", seed=1))
    wait_until(lambda: all(trial.runs_of(task_id) for task_id in long_jobs), what="the long jobs run")

    for _ in range(RESTARTS):
        trial.server.stop()
        trial.server.start()
        trial.books.send(texts(10, "sleep20", seed=2))

    trial.account().assert_clean()
    assert trial.rerun() == []
    assert set(map(trial.runs().get, long_jobs)) == {1}


@pytest.mark.fault("sigterm-without-server")
def test_a_worker_that_is_told_to_stop_while_the_server_is_away_stops_in_time_and_loses_nothing(trial: Trial) -> None:
    trial.fleet.start("a", max_batch_size=4, drain_timeout_s=DRAIN_S)
    trial.books.send(texts(20, "sleep500"))
    wait_until(lambda: trial.runs_on("a"), what="the worker works")
    trial.server.kill()
    time.sleep(1)

    told_s = time.monotonic()
    trial.fleet.end("a")
    stopped_in_s = time.monotonic() - told_s
    trial.server.start()
    trial.fleet.start("a")

    trial.account().assert_clean()
    assert stopped_in_s < DRAIN_S + STOPPED_WITHIN_S
