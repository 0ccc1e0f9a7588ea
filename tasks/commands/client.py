"""The producer's side, as any other service would write it: stock Celery, one `send_task` a message."""

import time
from collections.abc import Mapping

import celery

from schemas.bulk_plan import BulkRequest
from schemas.names import ENQUEUED_AT_HEADER, QUEUE_CLASSIFY, TASK_CLASSIFY
from tasks.bulk.sending import queue_of, task_of
from worker.ops.broker import connect
from worker.settings import Settings


def open_client(settings: Settings) -> celery.Celery:
    """Return a Celery application that can send and read, having heard from the broker.

    Raises:
        ConfigError: the broker's address cannot be parsed.
        redis.RedisError: the broker does not answer.
    """
    with connect(settings.broker_url) as probe:
        probe.ping()
    address = settings.address
    app = celery.Celery("batchmill-client", broker=address.celery_url, backend=address.celery_url, set_as_current=False)
    app.conf.broker_transport_options = address.transport_options
    app.conf.result_backend_transport_options = address.transport_options
    return app


def send(app: celery.Celery, message: Mapping[str, object], priority: int | None = None) -> str:
    """Enqueue the keyword arguments of one `classify.tickets`; return its task id."""
    return _send(app, TASK_CLASSIFY, QUEUE_CLASSIFY, message, priority)


def send_bulk(app: celery.Celery, request: BulkRequest, priority: int | None = None) -> str:
    """Enqueue the request of a bulk run; return its task id, which names the run that it plans."""
    message = request.model_dump(mode="json", exclude_unset=True)
    return _send(app, task_of(request), queue_of(request), message, priority)


def _send(app: celery.Celery, task: str, queue: str, message: Mapping[str, object], priority: int | None) -> str:
    sent = app.send_task(
        task,
        kwargs=dict(message),
        queue=queue,
        headers={ENQUEUED_AT_HEADER: time.time()},
        argsrepr="()",
        kwargsrepr="{}",  # Celery would copy the text into a header
        priority=priority,
    )
    return str(sent.id)
