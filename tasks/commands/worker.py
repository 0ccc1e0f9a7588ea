"""`batchmill worker`: one Celery worker process with the batch pool."""

import os
import signal
import sys
import threading
import time
from typing import Final, NoReturn

import click
import structlog
from celery import signals
from celery.worker import state

from tasks.app import create_app
from tasks.commands.failures import reported
from worker import logs
from worker.lifecycle import BatchApp
from worker.ops import broker
from worker.ops.findings import Status
from worker.ops.probes import probing
from worker.pool import EXIT_BROKEN
from worker.settings import Settings, load

RETRY_EVERY_S: Final = 2.0
LEAVE_S: Final = 2.0

log = structlog.get_logger(__name__)


@click.command()
@click.option("--name", "worker_name", help="Celery node name; `%h` is the host name.")
@click.option("-Q", "--queues", help="Queues to consume, comma-separated.")
@click.option("--model", help="`default`, a name below the models directory, or a directory.")
@click.option("--runners", type=int, help="Threads that run batches; 0 = the CPUs of the cgroup.")
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), help="Least severe log line.")
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), help="How a log line looks.")
@click.option("-E", "--task-events", is_flag=True, help="Send task events, for Flower and `celery events`.")
@reported
def worker(*, task_events: bool, **flags: object) -> None:
    """Start a worker: it takes messages from the queue until SIGTERM.

    A flag wins over its BATCHMILL_* variable. On SIGTERM running batches finish and the rest goes back to the
    queue; the exit code is then 0.
    """
    settings = load(**flags)
    logs.configure(settings.log_level, settings.log_format)
    log.info("worker.starting", broker=settings.safe_broker_url, queues=settings.queues, model=settings.model)
    signal.signal(signal.SIGTERM, _leave)  # until Celery sets its own
    app = create_app(settings)
    with probing(settings, app.vitals, app.tallies):
        app.vitals.starting = "it loads its models"
        workload = app.load(settings)  # here, where a missing model still ends in one line and exit code 3
        app.load = lambda _: workload
        app.vitals.starting = "it waits for the broker"
        wait_for_broker(settings)
        leave(run(app, task_events=task_events))


def wait_for_broker(settings: Settings) -> None:
    """Block until the broker answers, then refuse one that would lose jobs.

    Raises:
        ConfigError: the broker is not fit or refuses the credentials; the text says how to mend it.
    """
    while not broker.answers(settings.broker_url):
        log.warning("broker.unreachable", broker=settings.safe_broker_url, retry_in_s=RETRY_EVERY_S)
        time.sleep(RETRY_EVERY_S)
    for finding in broker.require(broker.examine(settings)):
        if finding.status is Status.WARN:
            log.warning("broker.warning", check=finding.name, seen=finding.text, remedy=finding.remedy)


def _leave(*_: object) -> NoReturn:
    """End at SIGTERM while nothing is in hand; as process 1 of a container Python would ignore it."""
    sys.exit(0)


def leave(code: int) -> NoReturn:
    """End the process. What a thread still waits for, a store that does not answer, say, is not waited for."""
    mine = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not mine and not thread.daemon]
    for thread in others:
        thread.join(LEAVE_S / len(others))
    left = [thread.name for thread in others if thread.is_alive()]
    if not left:
        sys.exit(code)
    log.warning("worker.left", threads=left)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Python would wait for them (apache/arrow#50188), and abort where one is inside of Arrow


def run(app: BatchApp, *, task_events: bool) -> int:
    """Run Celery's worker in this process until it stops; return its exit code."""
    signals.setup_logging.connect(logs.keep_configured)
    running = app.Worker(
        hostname=app.settings.worker_name,
        task_events=task_events,
        without_gossip=True,
        without_mingle=True,
        quiet=True,  # its banner is no log line
    )
    running.start()
    if state.should_terminate == EXIT_BROKEN:  # Celery's cold shutdown keeps the code to itself
        return EXIT_BROKEN
    return int(running.exitcode or 0)
