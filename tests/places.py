"""Messages in the places where an operator finds them: waiting, held, or dead with the worker that held them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.ledger import Drained, Ledger, Terms

if TYPE_CHECKING:
    import redis
    from celery import Celery

QUEUES = ["classify"]
TTL_S = 60


def fragile_worker(client: redis.Redis) -> Ledger:
    """The ledger of a worker that gives a message up at its first crash."""
    return Ledger(client, "alpha:host/1/aa", QUEUES, Terms(max_crashes=1, result_ttl_s=TTL_S))


def send(app: Celery, *ids: str, task_id: str = "job", **options: Any) -> str:  # noqa: ANN401 - Celery's options
    """Enqueue a message of tickets with these ids; return its task id."""
    tickets = [{"id": one, "text": "a secret"} for one in ids or ["T-1"]]
    kwargs = {"tickets": tickets}
    return str(app.send_task("classify.tickets", kwargs=kwargs, task_id=task_id, queue="classify", **options).id)


def hold(ledger: Ledger) -> list[Drained]:
    """Let the worker take all that waits."""
    ledger.open_inboxes(QUEUES)
    return ledger.drain(100)


def kill(ledger: Ledger, *drained: Drained) -> None:
    """Let the worker die while these are in inference, and be swept."""
    ledger.mark_running("runner-0", [one.held.tag for one in drained])
    ledger.sweep(former=ledger.incarnation)
