"""The callbacks reach Celery's event loop, from whatever thread and in order."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import pytest

from worker.callbacks import Callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Hub:
    """An event loop that runs what is due when told to."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)

    def turn(self) -> None:
        while self._due:
            self._due.popleft()()


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def callbacks(hub: Hub) -> Callbacks:
    made = Callbacks()
    made.attach(hub)
    return made


class Crossing(deque):
    """Lets another thread post just after the first call is in."""

    def __init__(self, post: Callable[[], object]) -> None:
        super().__init__()
        self._post = post

    def extend(self, items: Iterable[object]) -> None:
        super().extend(items)
        post, self._post = self._post, lambda: None
        thread = threading.Thread(target=post)
        thread.start()
        thread.join(0.2)  # it may have to wait for this very call


def test_what_two_threads_post_at_one_moment_is_called(callbacks: Callbacks, hub: Hub) -> None:
    called: list[str] = []
    callbacks._waiting = Crossing(lambda: callbacks.post(called.append, "other"))  # noqa: SLF001 - the moment is inside

    callbacks.post(called.append, "one")
    wait_for_threads()
    hub.turn()

    assert called == ["one", "other"]


def test_a_callback_that_fails_keeps_none_of_the_others_back(callbacks: Callbacks, hub: Hub) -> None:
    called: list[int] = []
    callbacks.post(lambda: 1 // 0)
    callbacks.post(called.append, 1)
    hub.turn()
    callbacks.post(called.append, 2)
    hub.turn()

    assert called == [1, 2]


def test_what_was_due_on_a_lost_loop_is_called_on_the_next(callbacks: Callbacks) -> None:
    called: list[int] = []
    callbacks.post(called.append, 1)
    fresh = Hub()

    callbacks.attach(fresh)
    fresh.turn()

    assert called == [1]


def wait_for_threads() -> None:
    """Wait for the threads that the test has started."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)
