"""`python -m tests.integration.extra_tasks worker`: the worker with a few plain Celery tasks beside the batched one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from celery import shared_task

from tasks.cli import main

if TYPE_CHECKING:
    from celery import Task

COMMAND = [sys.executable, "-m", "tests.integration.extra_tasks", "worker", "-E"]


@shared_task(name="extra.count_results")
def count_results(*results: dict[str, Any] | list[dict[str, Any]]) -> int:
    """Return how many tickets the results of one or several messages hold."""
    flat = [one for result in results for one in (result if isinstance(result, list) else [result])]
    return sum(len(result["results"]) for result in flat)


@shared_task(name="extra.note")
def note(*args: object, key: str) -> None:
    """Leave a mark that the test can read."""
    note.app.backend.client.rpush(key, len(args))


@shared_task(name="extra.note_failure")
def note_failure(request: Any, exc: object, traceback: str, key: str) -> None:  # noqa: ANN401 - Celery's context
    """Leave the failed task's id and error as a mark; takes what Celery passes to an errback of three arguments."""
    del traceback
    note.app.backend.client.rpush(key, f"{request.id} {exc}")


@shared_task(name="extra.fail")
def fail(*_args: object) -> None:
    """Fail."""
    raise ValueError("on purpose")


@shared_task(name="extra.retry_once", bind=True, max_retries=1)
def retry_once(self: Task) -> int:
    """Succeed at the second try; return the number of retries."""
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@shared_task(name="extra.note_and_retry", bind=True, max_retries=2)
def note_and_retry(self: Task, *, key: str) -> int:
    """Leave a mark at each try and succeed at the third; return the number of retries."""
    self.backend.client.rpush(key, self.request.retries)
    if self.request.retries < self.max_retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@shared_task(name="extra.note_and_replace", bind=True)
def note_and_replace(self: Task, *, key: str) -> None:
    """Leave a mark, then let `extra.count_results` be what this task is."""
    self.backend.client.rpush(key, "replaced")
    raise self.replace(self.app.signature("extra.count_results", queue="classify"))


if __name__ == "__main__":
    main()
