import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from worker import logs
from worker.errors import ConfigError
from worker.redaction import WITHHELD, redact

CANARY = "my card 4929 was charged twice"


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


pytestmark = pytest.mark.usefixtures("restored_logging")


def configured(level: str = "info", log_format: str = "json") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, log_format, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_becomes_one_json_line_with_time_level_logger_and_bound_ids() -> None:
    stream = configured()
    with structlog.contextvars.bound_contextvars(task_id="a1"):
        structlog.get_logger("worker.engine").info("batch.finished", rows=3)
    (line,) = lines(stream)
    assert line.pop("time")
    assert line == {
        "event": "batch.finished",
        "rows": 3,
        "task_id": "a1",
        "level": "info",
        "logger": "worker.engine",
    }


def test_celery_records_take_the_same_path() -> None:
    stream = configured()
    logging.getLogger("celery.apps.worker").info("%s ready.", "batchmill@host")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == (
        "batchmill@host ready.",
        "info",
        "celery.apps.worker",
    )


def received(level: str) -> list[dict[str, object]]:
    stream = configured(level)
    context = {"id": "a1", "name": "classify.tickets", "args": CANARY, "kwargs": CANARY}
    logging.getLogger("celery.worker.strategy").info("Task %(name)s[%(id)s] received", context, extra={"data": context})
    return lines(stream)


def test_a_line_per_job_is_a_debug_line_with_its_task_id() -> None:
    assert received("info") == []
    (line,) = received("debug")
    assert line["event"] == "Task classify.tickets[a1] received"
    assert (line["level"], line["task_id"], line["task"]) == ("debug", "a1", "classify.tickets")


@pytest.mark.parametrize(
    ("logger", "message", "args"),
    [
        pytest.param(
            "celery.app.trace",
            "Task %(name)s[%(id)s] succeeded in %(runtime)ss: %(return_value)s",
            ({"id": "a1", "name": "ocr.documents", "runtime": 0.5, "return_value": CANARY},),
            id="a result",
        ),
        pytest.param(
            "celery.worker.consumer.consumer",
            "Received unregistered task of type %s.\nThe full contents of the message body was:\n%s",
            (KeyError("wrong.name"), f"{{'text': '{CANARY}'}} (40b)"),
            id="a message body",
        ),
        pytest.param("kombu.transport.redis", "Could not restore message: %r", ({"body": CANARY},), id="a payload"),
        pytest.param(
            "celery.concurrency.base",
            "TaskPool: Apply %s (args:%s kwargs:%s)",
            (print, (CANARY,), {"tickets": CANARY}),
            id="arguments of a slot",
        ),
        pytest.param("celery.worker.request", "Task %s[%s] retry: %s", ("n", "a1", CANARY), id="a reason"),
        pytest.param("celery.worker.request", "Task handler raised error: %r", (ValueError(CANARY),), id="an error"),
    ],
)
def test_foreign_records_show_identifiers_and_never_content(
    logger: str, message: str, args: tuple[object, ...]
) -> None:
    stream = configured("debug")
    logging.getLogger(logger).error(message, *args)
    assert CANARY not in stream.getvalue()
    assert WITHHELD in stream.getvalue()


def test_a_connection_error_keeps_its_address_and_cause() -> None:
    stream = configured()
    logging.getLogger("celery.worker.consumer.consumer").error(
        "consumer: Cannot connect to %s: %s.\n%s\n",
        "redis://localhost:6379/0",
        ConnectionRefusedError(111, "Connection refused"),
        "Trying again in 2.00 seconds... (1/100)",
    )
    assert "Cannot connect to redis://localhost:6379/0" in stream.getvalue()
    assert "Connection refused" in stream.getvalue()


@pytest.mark.parametrize(
    ("exc", "shown"), [("MessageError('unknown_field: tickets[0].x')", True), (f"ValueError('{CANARY}')", False)]
)
def test_a_failed_task_says_why_if_the_error_is_our_own(exc: str, shown: bool) -> None:  # noqa: FBT001 - a case
    stream = configured()
    context = {"id": "a1", "name": "classify.tickets", "description": "raised unexpected", "exc": exc, "args": CANARY}
    logging.getLogger("celery.app.trace").error("Task %(name)s[%(id)s] %(description)s: %(exc)s", context)
    (line,) = lines(stream)
    assert line["event"] == f"Task classify.tickets[a1] raised unexpected: {exc if shown else WITHHELD}"


def test_redaction_leaves_the_original_record_to_other_handlers() -> None:
    record = logging.LogRecord("kombu.x", logging.ERROR, "f", 1, "%r", ({"body": CANARY},), None)
    assert redact(record) is not record
    assert CANARY in record.getMessage()


def fail_twice() -> None:
    try:
        int(CANARY)
    except ValueError as error:
        raise ConfigError("BATCHMILL_MODEL: no such directory") from error


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_frames_and_types_but_neither_foreign_texts_nor_locals(log_format: str) -> None:
    stream = configured(log_format=log_format)
    try:
        fail_twice()
    except ConfigError:
        structlog.get_logger("worker.engine").exception("model.failed")
        logging.getLogger("celery.app.trace").exception("boom")
    written = stream.getvalue()
    assert CANARY not in written
    assert written.count("BATCHMILL_MODEL: no such directory") >= 2
    assert f"builtins.ValueError: {WITHHELD}" in written
    assert "test_logs.py" in written


def test_a_line_that_cannot_be_formatted_is_reported_without_its_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configured()
    logging.getLogger("somewhere").error("%d", CANARY)
    written = capsys.readouterr().err
    assert CANARY not in written
    assert "a log line of somewhere was lost: TypeError" in written


def test_auto_means_json_unless_the_stream_is_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        logs.configure("info", "auto", stream)
        structlog.get_logger("worker").info("worker.ready")
    assert "worker.ready" in terminal.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(terminal.getvalue())
    assert json.loads(pipe.getvalue())["event"] == "worker.ready"
