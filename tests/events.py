"""Listens to Celery's events as Flower does."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

Event = dict[str, Any]

WORKER_WITH_EVENTS = [sys.executable, "-m", "tasks.cli", "worker", "-E"]


class Recorder:
    """Every event since `recording` began."""

    def __init__(self, app: Celery) -> None:
        self.events: list[Event] = []
        self._app = app
        self._stopped = threading.Event()

    def of_task(self, task_id: str) -> list[str]:
        """Return the types of a task's events, in the order of their clocks."""
        events = [event for event in self.events if event.get("uuid") == task_id]
        return [event["type"] for event in sorted(events, key=lambda event: event["clock"])]

    def listen(self) -> None:
        """Record until stopped; the body of a thread."""
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self.events.append})
            with receiver.consumer_context(wakeup=True) as (connected, _, _):
                while not self._stopped.is_set():
                    try:
                        connected.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    def stop(self) -> None:
        """End `listen`."""
        self._stopped.set()


@contextmanager
def recording(app: Celery) -> Iterator[Recorder]:
    """Record events inside the block; a worker that sends events must be running."""
    recorder = Recorder(app)
    thread = threading.Thread(target=recorder.listen, name="events", daemon=True)
    thread.start()
    try:
        wait_until(lambda: recorder.events, what="a heartbeat")
        yield recorder
    finally:
        recorder.stop()
        thread.join(10)
