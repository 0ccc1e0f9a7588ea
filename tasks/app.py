"""The composition root: one Celery application from one `Settings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kombu import Exchange, Queue

from schemas.names import (
    QUEUE_BULK,
    QUEUE_BULK_OCR,
    QUEUE_CLASSIFY,
    QUEUE_OCR,
    TASK_BULK_CLASSIFY,
    TASK_BULK_OCR,
    TASK_BULK_SHARD,
    TASK_CLASSIFY,
    TASK_OCR_DOCUMENTS,
)
from tasks.classify.model import TicketClassifier
from tasks.classify.pipeline import ClassifyPipeline
from worker.errors import ConfigError, ModelError
from worker.lifecycle import BatchApp, Workload
from worker.models.cpu import available_cpus
from worker.models.repository import ModelDir, resolve
from worker.models.session import Session
from worker.task import BatchTask

if TYPE_CHECKING:
    from worker.jobs import Pipeline
    from worker.lanes import Lane
    from worker.settings import Settings

SOCKET_TIMEOUT_S = 5.0  # the waits of event loop and threads on half-open connections add up; all mended within 25 s
HEALTH_CHECK_S = 10
INTRA_OP_THREADS = 1  # parallelism comes from the runners: it costs 5 to 12 % less CPU than threads inside one call

OF_DOCUMENTS = {QUEUE_OCR, QUEUE_BULK_OCR}

# By the address's scheme: the transport in worker.transport, the result backend in worker.delivery.
_CLASSES = {
    "redis": ("Transport", "CapturingBackend"),
    "rediss": ("Transport", "CapturingBackend"),
    "redis+socket": ("SocketTransport", "CapturingBackend"),
    "sentinel": ("SentinelTransport", "CapturingSentinelBackend"),
}


class ClassifyTickets(BatchTask):
    """Labels the tickets of a message."""

    name = TASK_CLASSIFY


class OcrDocuments(BatchTask):
    """Reads the documents of a message."""

    name = TASK_OCR_DOCUMENTS


def create_app(settings: Settings) -> BatchApp:
    """Return the application: broker, results, queues and tasks; it connects and loads nothing yet."""
    address = settings.address
    url = address.celery_url.removeprefix("redis+")  # with that prefix kombu would take its own transport
    transport, backend = _CLASSES[address.scheme]
    app = BatchApp(
        "batchmill",
        settings=settings,
        load=load_workload,
        slots={
            QUEUE_BULK: settings.bulk_slots,
            QUEUE_BULK_OCR: settings.bulk_slots,
            QUEUE_OCR: settings.runners or available_cpus(),
        },
        message_bytes={QUEUE_OCR: settings.max_document_message_bytes},
        backend=f"worker.delivery:{backend}+{url}",
    )
    app.conf.update(
        broker_url=url,
        broker_transport=f"worker.transport:{transport}",
        result_backend_transport_options=address.transport_options,
        redis_socket_timeout=SOCKET_TIMEOUT_S,
        redis_socket_connect_timeout=SOCKET_TIMEOUT_S,
        redis_socket_keepalive=not address.path,
        redis_backend_health_check_interval=HEALTH_CHECK_S,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        result_expires=settings.result_ttl_s,
        task_default_queue=QUEUE_CLASSIFY,
        task_queues=[Queue(name, Exchange(name), routing_key=name) for name in settings.queues],
        task_routes={
            TASK_CLASSIFY: {"queue": QUEUE_CLASSIFY},
            TASK_BULK_CLASSIFY: {"queue": QUEUE_BULK},
            TASK_BULK_OCR: {"queue": QUEUE_BULK_OCR},
            TASK_BULK_SHARD: {"queue": QUEUE_BULK},
            TASK_OCR_DOCUMENTS: {"queue": QUEUE_OCR},
        },
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_pool="worker.pool:BatchPool",
        worker_consumer="worker.consumer:Consumer",
        worker_concurrency=settings.max_jobs_in_flight,
        worker_prefetch_multiplier=0,  # the credit limits what is fetched
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    app.conf.broker_transport_options = address.transport_options | {
        "custody": app.custody,
        "room": app.room,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK_S,
    }
    if serves_classify(settings):
        app.register_task(ClassifyTickets())
    if QUEUE_OCR in settings.queues:
        app.register_task(OcrDocuments())
    if not {QUEUE_BULK, QUEUE_BULK_OCR}.isdisjoint(settings.queues):
        from tasks.bulk import task as bulk  # noqa: PLC0415 - pyarrow takes 50 MB

        bulk.register(app)
    return app


def serves_classify(settings: Settings) -> bool:
    """Whether a worker needs a classifier: for every queue but those of documents."""
    return not set(settings.queues) <= OF_DOCUMENTS


def load_workload(settings: Settings) -> Workload:
    """Load the models that the queues of the settings need.

    Raises:
        ConfigError: a model or an execution provider is missing.
    """
    models: dict[str, TicketClassifier] = {}
    pipelines: dict[str, Pipeline] = {}
    lanes: dict[str, Lane] = {}
    if serves_classify(settings):
        model_dir = find_model(settings)
        classifier = TicketClassifier(model_dir, Session(model_dir.onnx_path, settings.providers, INTRA_OP_THREADS))
        models[classifier.name] = classifier
        pipelines[TASK_CLASSIFY] = ClassifyPipeline(models, classifier.name)
    if not OF_DOCUMENTS.isdisjoint(settings.queues):
        lanes, pipelines[TASK_OCR_DOCUMENTS] = _load_ocr(settings)
    return Workload(models, pipelines, lanes)


def _load_ocr(settings: Settings) -> tuple[dict[str, Lane], Pipeline]:
    try:
        from tasks.ocr.serving import load_ocr  # noqa: PLC0415 - its libraries are an extra
    except ModuleNotFoundError as error:
        text = (
            f"the queues {QUEUE_OCR} and {QUEUE_BULK_OCR} need the package {error.name}: pip install 'batchmill[ocr]'"
        )
        raise ConfigError(text) from error
    return load_ocr(settings)


def find_model(settings: Settings) -> ModelDir:
    """Return the directory of the model that the settings name; `default` is the one that `model build` makes.

    Raises:
        ModelError: there is none.
    """
    if settings.model != "default":
        return resolve(settings.model, settings.models_dir)
    from tasks.classify.build import default_model_dir  # noqa: PLC0415 - only the default model needs the builder

    built = default_model_dir(settings.cache_dir)
    if built is None:
        raise ModelError(f"the default model is not built below {settings.cache_dir}: run `batchmill model build`")
    return resolve(str(built), settings.models_dir)
