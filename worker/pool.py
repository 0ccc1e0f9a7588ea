"""The Celery execution pool whose slot is a job: batched tasks go through the engine, all others to a few threads.

Queues with slots have threads of their own, so that a minute's work never waits behind another.

Everything else stays Celery's: strategy, request, revoke, ETA, expires, events, `inspect`. Celery's callbacks run on
its event loop, never on our threads; the loop itself never waits for us.
"""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog
from celery import signals
from celery.concurrency.base import BasePool
from celery.worker import state
from redis.exceptions import RedisError

from schemas.errors import ErrorCode, MessageError
from schemas.names import band_of
from worker.accounts import Accounts, begin
from worker.callbacks import Callbacks
from worker.delivery import Finisher
from worker.jobs import Job
from worker.keeper import Keeper
from worker.marking import Marker
from worker.requests import accepted, charge_of, count_revoked, deadline_s, ended, revoked, stated_wait_s
from worker.runs import Runs
from worker.slots import Slot, occupying
from worker.vitals import TURN_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.delivery import Traced
    from worker.engine import Engine
    from worker.lifecycle import BatchApp

log = structlog.get_logger(__name__)

EXIT_BROKEN = 70  # EX_SOFTWARE
HARD_EXIT_GRACE_S = 10.0
STOCK_THREADS = 4
GARBAGE_THRESHOLD = 20_000  # new containers between two looks; Python's own 700 are those of 20 jobs


class BatchPool(BasePool):  # type: ignore[misc] # celery has no types
    """Runs batched tasks on the engine that `app.build_engine` makes."""

    app: BatchApp
    signal_safe = False
    body_can_be_buffer = True
    # No task waits for another, so Celery need not subscribe to the results of what a task sends.
    task_join_will_block = True

    _engine: Engine
    _finisher: Finisher
    _stock: ThreadPoolExecutor

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        super().__init__(*args, **options)
        self._callbacks = Callbacks()
        self._runs = Runs()
        self._marked: dict[str, list[str]] = {}  # by runner: what the sweep will blame if this process dies of it
        self._dies_of_inference = False

    # Celery's side; called on its event loop.

    def on_start(self) -> None:
        """Load and warm the models, then start the threads; the first message is taken after this."""
        app = self.app
        self._custody = app.custody
        self._markers = threading.local()
        self._pipelines, self._engine = app.build_engine(self)
        self._finisher = Finisher(app.custody, self._committed, self._give_up, busy=lambda: self._engine.backlog() > 0)
        self._accounts = Accounts(app.tallies, app.meter)
        tasks = [name for name in app.tasks if not name.startswith("celery.")]
        begin(app.tallies, self._engine, app.custody, tasks=tasks, batched=self._pipelines)
        signals.task_revoked.connect(partial(count_revoked, app.tallies), weak=False)
        self._stock_runs: set[Future[None]] = set()
        self._stock = ThreadPoolExecutor(STOCK_THREADS, thread_name_prefix="stock")
        self._slots = {queue: ThreadPoolExecutor(count, queue) for queue, count in app.slots.items()}
        self._keeper = Keeper(
            app.custody,
            app.terms,
            on_lost=self._lost,
            on_dead=self._look_after_the_dead,
            revoked=lambda: list(state.revoked),
            rate=self._engine.units_per_s,
            meter=app.meter,
            tallies=app.tallies,
            heard=app.vitals.heard,
        )
        spare_garbage_collection()
        self._finisher.start()
        self._engine.start()
        self._keeper.start()
        app.room.attach(self._engine)
        threads = [*self._engine.threads, self._finisher.thread, self._keeper.thread]
        app.vitals.started(threads, self._engine.longest_call_s, is_stopping)

    def register_with_event_loop(self, hub: Any) -> None:  # noqa: ANN401 - kombu's hub
        """Learn which loop the callbacks belong to, and let it give signs of life."""
        self._callbacks.attach(hub)
        hub.call_repeatedly(TURN_EVERY_S, self.app.vitals.turned)  # Celery cancels it with the connection

    def on_apply(
        self,
        _target: Callable[..., Any],
        _args: Sequence[Any],
        _kwargs: dict[str, Any],
        accept_callback: Callable[..., object],
        **_options: Any,  # noqa: ANN401 - Celery's own signature
    ) -> None:
        """Take a request; `accept_callback` is bound to it."""
        request = accept_callback.__self__  # type: ignore[attr-defined] # a bound method of the request
        pipeline = self._pipelines.get(request.task.name)
        if pipeline is None:
            self._runs.begin(request)
            threads = self._slots.get(request.delivery_info["routing_key"], self._stock)
            self._stock_runs.add(run := threads.submit(self._run_stock, request))
            run.add_done_callback(self._stock_runs.discard)
            return
        stated_s = stated_wait_s(request)
        job = Job(request.id, pipeline, monotonic() - (stated_s or 0.0), context=request)
        job.charge = charge_of(request)
        job.is_on_credit = job.charge.queue not in self.app.slots
        job.deadline_s = deadline_s(request)
        job.queue_wait_is_lower_bound = stated_s is None
        job.suspect = self._custody.crashes(request.message.delivery_tag) > 0
        self._runs.begin(request, job)
        try:
            job.band = band_of(request.delivery_info["priority"])
        except ValueError as exc:
            self._engine.refuse(job, MessageError(ErrorCode.PRIORITY_OUT_OF_RANGE, str(exc)))
        else:
            self._engine.submit(job, request.args, request.kwargs)

    def flush(self) -> None:
        """The broker connection is lost: forget what has not started; the consumer hands it back on reconnect."""
        dropped = self._engine.drop_waiting()
        for job in dropped:
            self._runs.end(job.context)
        if dropped:
            log.warning("pool.flushed", jobs=len(dropped))

    def on_stop(self) -> None:
        """Finish the running batches and commit them; the rest goes back to the front of its queues."""
        self._drain(self.app.settings.drain_timeout_s)

    def on_terminate(self) -> None:
        """Cold shutdown: like `on_stop`, but the running batches are cancelled."""
        self._drain(0.0)

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Do nothing: a job cannot be killed alone; Celery marks it and its late result is not recorded."""

    def held_tags(self) -> set[str]:
        """Return the delivery tags of the jobs that are here and not recorded yet."""
        return self._runs.tags()

    def _get_info(self) -> dict[str, object]:
        info: dict[str, object] = super()._get_info()
        return info | {"engine": asdict(self._engine.stats)}

    def _drain(self, timeout_s: float) -> None:
        deadline_s = monotonic() + timeout_s
        for threads in (self._stock, *self._slots.values()):
            threads.shutdown(wait=False, cancel_futures=True)
        left = self._engine.stop(timeout_s)
        wait(tuple(self._stock_runs), max(0.0, deadline_s - monotonic()))
        self._finisher.stop(max(1.0, deadline_s - monotonic()))
        self._callbacks.run()
        self._keeper.stop()  # late: what is held until here is renewed until here
        blamed = set(chain.from_iterable(self._marked.values())) if self._dies_of_inference else ()
        try:
            given_back = self._custody.give_back([tag for tag in self._custody.tags() if tag not in blamed])
        except RedisError as exc:
            log.warning("pool.drained", unfinished=len(left), given_back=0, error=type(exc).__name__)  # by lease, then
        else:
            log.info("pool.drained", unfinished=len(left), given_back=given_back)

    # The engine's side; called on its threads.

    def is_cancelled(self, job: Job) -> bool:
        """Return whether the request has been revoked since it came."""
        return job.id in state.revoked

    def started(self, jobs: Sequence[Job]) -> None:
        """Tell Celery that these jobs run now; there is room for others."""
        self.app.room.changed()
        now_s = monotonic()
        self._callbacks.post_all([(accepted, (job.context, now_s)) for job in jobs])

    def finished(self, job: Job) -> None:
        """Pass a job on to be traced and committed."""
        self._finisher.put(job.context, job)

    def dropped(self, job: Job) -> None:
        """Let Celery announce that a job was revoked or has expired."""
        self._runs.end(job.context)
        self._callbacks.post(revoked, job.context)

    def broken(self, reason: str) -> None:
        """Die of what is in inference: it stays held, for the sweep to blame; handed back, it would return for ever."""
        self._dies_of_inference = True
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Stop the worker: cold shutdown, and a hard exit should even that hang."""
        log.critical("engine.broken", reason=reason)
        self.app.vitals.broken = reason
        state.should_terminate = EXIT_BROKEN
        timer = Timer(HARD_EXIT_GRACE_S, os._exit, (EXIT_BROKEN,))
        timer.daemon = True
        timer.start()

    def running(self, jobs: Sequence[Job], *, alone: bool) -> None:
        """Mark what runs next, for the sweep to blame should it kill the worker."""
        if not hasattr(self._markers, "marker"):
            self._markers.marker = Marker(self._custody.ledger)
        tags = [job.context.message.delivery_tag for job in jobs]  # type: ignore[attr-defined] # Celery's request
        self._marked[threading.current_thread().name] = tags
        self._markers.marker.mark(tags, wait=alone)

    def _run_stock(self, request: Any) -> None:  # noqa: ANN401 - Celery's request
        self._callbacks.post(accepted, request, monotonic())
        suspect = self._custody.crashes(request.message.delivery_tag) > 0
        slot = Slot(self._engine, request.id, request, charge_of(request), suspect=suspect)
        self._runs.occupy(request, slot)
        with self.app.meter.occupied(slot, self._slots_of(slot)), occupying(slot):
            self._finisher.run(request)

    # The finisher's and the keeper's side; called on their threads.

    def _committed(self, traced: Sequence[Traced], recorded: Sequence[Traced]) -> None:
        ours = {id(one) for one in recorded}
        self._account_for(recorded)
        for one in traced:
            self._runs.end(one.request)
        self._callbacks.post_all(
            [
                (ended, (one.request, one.answer)) if id(one) in ours else (state.task_ready, (one.request,))
                for one in traced
            ]
        )
        self.app.room.changed()

    def _account_for(self, recorded: Sequence[Traced]) -> None:
        for one in recorded:
            task = one.request.task.name
            match self._runs.work_of(one.request):
                case Job() as job:
                    self._accounts.job(task, one.state, job)
                case Slot() as slot:
                    self._accounts.slot(task, one.state, slot, self._slots_of(slot))
        self._accounts.record(self._finisher.worked_s, self._finisher.committed_s)

    def _slots_of(self, slot: Slot) -> int:
        """Return of how many slots it is one."""
        return self.app.slots.get(slot.charge.queue, STOCK_THREADS)

    def _lost(self, tags: set[str]) -> None:
        """Others have taken these messages: drop what has not started; the rest is fenced off at its commit."""
        for job in self._runs.lose(tags, self._custody):
            if self._engine.drop(job):
                self._callbacks.post(state.task_ready, job.context)

    def _look_after_the_dead(self) -> None:
        """Let the application see what dead letters mean to it, on a thread that may block."""
        with suppress(RuntimeError):  # the worker stops
            self._stock.submit(self.app.on_dead_letters)


def is_stopping() -> bool:
    """Return whether the worker was told to stop."""
    return any(told is not None and told is not False for told in (state.should_stop, state.should_terminate))


def spare_garbage_collection() -> None:
    """Let the collector skip what has been loaded, and look less often: jobs that end leave it nothing to find."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])
