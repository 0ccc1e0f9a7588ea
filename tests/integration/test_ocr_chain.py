"""A scanned German ticket goes through a chain of stock Celery: it is read, then labelled, and shown to nobody."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, chord

from schemas.errors import ErrorCode
from schemas.results import ClassifyResult
from tests import documents
from tests.events import WORKER_WITH_EVENTS, recording
from tests.letters import GERMAN_TICKET, scan
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis
    from celery import Celery

    from tests.events import Recorder
    from tests.services import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAIT_S = 120
TRACES = ("ckzahlung", "Bestellung", "hringer")  # parts of words that no escape changes
UNSERVED = "elsewhere"
SENSIBLE = {"refund", "billing"}


@pytest.fixture(scope="module")
def start_reader(start_worker: Callable[..., WorkerProcess], ocr_model: Path) -> Callable[[], WorkerProcess]:
    """Start a worker that reads documents, says all that Celery can say of it, and labels nothing."""

    def start() -> WorkerProcess:
        return start_worker(
            command=WORKER_WITH_EVENTS,
            queues="ocr",
            models_dir=ocr_model.parent,
            ocr_model=ocr_model.name,
            log_level="debug",
        )

    return start


def reading(app: Celery, *contents: bytes) -> Any:  # noqa: ANN401 - celery has no types
    asked = [
        {"id": f"T-{number}", "content": base64.b64encode(content).decode()} for number, content in enumerate(contents)
    ]
    return app.signature("ocr.documents", kwargs={"documents": asked}, queue="ocr")


def waiting(client: redis.Redis, queue: str) -> dict[str, Any]:
    """The only message of a queue that nobody serves."""
    wait_until(lambda: client.llen(queue), WAIT_S, f"a message waits in {queue}")
    (raw,) = client.lrange(queue, 0, -1)
    message: dict[str, Any] = json.loads(raw)
    return message


def assert_only_the_body_has_the_text(message: dict[str, Any]) -> None:
    body = base64.b64decode(message.pop("body")).decode()
    shown = json.dumps(message)
    assert all(trace in body for trace in TRACES)
    assert [trace for trace in TRACES if trace in shown] == []
    assert message["headers"]["argsrepr"] == message["headers"]["kwargsrepr"] == "<hidden>"


def assert_nothing_is_seen(recorder: Recorder, worker: WorkerProcess) -> None:
    wait_until(lambda: any(event["type"] == "task-succeeded" for event in recorder.events), what="an event of its end")
    seen = json.dumps(recorder.events) + worker.lines
    assert "ocr.documents" in seen
    assert [trace for trace in TRACES if trace in seen] == []


def test_a_chain_labels_a_scanned_german_ticket_beside_a_broken_one_and_shows_its_text_to_nobody(
    app: Celery,
    client: redis.Redis,
    start_reader: Callable[[], WorkerProcess],
    start_worker: Callable[..., WorkerProcess],
    default_model: Path,
) -> None:
    worker, letter = start_reader(), scan(GERMAN_TICKET)
    labelling = app.signature("classify.tickets", queue="classify")
    with recording(app) as recorder:
        sent = chain(reading(app, letter, letter[: len(letter) // 2], documents.fax()), labelling).apply_async()
        assert_only_the_body_has_the_text(waiting(client, "classify"))
        assert_nothing_is_seen(recorder, worker)

    start_worker(default_model, queues="classify")
    ticket, broken, fax = ClassifyResult.model_validate(sent.get(timeout=WAIT_S)).results
    assert ticket.label in SENSIBLE
    assert broken.error is not None
    assert (broken.label, broken.error.code) == (None, ErrorCode.DAMAGED_DOCUMENT)
    assert fax.label in SENSIBLE
    assert sent.parent.get(timeout=WAIT_S)["results"][0]["text"].splitlines()[-1] == GERMAN_TICKET[-1]


def test_the_body_of_a_chord_over_documents_has_the_text_and_its_headers_have_not(
    app: Celery, client: redis.Redis, start_reader: Callable[[], WorkerProcess]
) -> None:
    start_reader()
    letter = scan(GERMAN_TICKET)
    counting = app.signature("elsewhere.count", queue=UNSERVED)
    chord([reading(app, letter), reading(app, letter)], counting).apply_async()
    assert_only_the_body_has_the_text(waiting(client, UNSERVED))
