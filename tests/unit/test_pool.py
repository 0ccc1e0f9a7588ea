"""The pool's callbacks reach Celery's event loop, from whatever thread and in order."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import pytest

from worker.pool import BatchPool

if TYPE_CHECKING:
    from collections.abc import Callable


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
def pool(hub: Hub) -> BatchPool:
    made = BatchPool(1)
    made.register_with_event_loop(hub)
    return made


class Crossing(deque):
    """Lets another thread post just after each append."""

    def __init__(self, post: Callable[[], object]) -> None:
        super().__init__()
        self._post = post

    def append(self, item: object) -> None:
        super().append(item)
        post, self._post = self._post, lambda: None
        thread = threading.Thread(target=post)
        thread.start()
        thread.join(0.2)  # it may have to wait for this very append


def test_what_two_threads_post_at_one_moment_is_called(pool: BatchPool, hub: Hub) -> None:
    called: list[str] = []
    pool._callbacks = Crossing(lambda: pool._post(called.append, "other"))  # noqa: SLF001 - the moment is inside

    pool._post(called.append, "one")  # noqa: SLF001 - as its runners do
    wait_for_threads()
    hub.turn()

    assert called == ["one", "other"]


def test_a_callback_that_fails_keeps_none_of_the_others_back(pool: BatchPool, hub: Hub) -> None:
    called: list[int] = []
    pool._post(lambda: 1 // 0)  # noqa: SLF001 - as its runners do
    pool._post(called.append, 1)  # noqa: SLF001 - as its runners do
    hub.turn()
    pool._post(called.append, 2)  # noqa: SLF001 - as its runners do
    hub.turn()

    assert called == [1, 2]


def test_what_was_due_on_a_lost_loop_is_called_on_the_next(pool: BatchPool) -> None:
    called: list[int] = []
    pool._post(called.append, 1)  # noqa: SLF001 - as its runners do
    fresh = Hub()

    pool.register_with_event_loop(fresh)
    fresh.turn()

    assert called == [1]


def wait_for_threads() -> None:
    """Wait for the threads that the test has started."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)
