"""One stream of log lines: structlog's own and, through the same processors, those of celery and kombu.

Events of this project are dotted constants with values as keys (`log.info("model.loaded", model=name)`), ids
are bound with `structlog.contextvars.bound_contextvars`, and lines go to standard error as JSON or, in a
terminal, as readable text. Celery's lines per job are debug lines here. What may be shown of foreign records
and exceptions is decided in `worker.redaction`.
"""

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from worker.redaction import redact, render_exception

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Celery writes one or two INFO lines per job here.
_PER_JOB_LOGGERS: Final = ("celery.app.trace", "celery.worker.strategy", "celery.worker.request")


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging of the process to `stream` (standard error if None); may be called again.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        log_format: `json`, `console`, or `auto` = console in a terminal.
        stream: where lines go.
    """
    target = stream or sys.stderr
    console = log_format == "console" or (log_format == "auto" and target.isatty())
    _configure_structlog(level)
    handler = _LineHandler(target)
    handler.setFormatter(_formatter(_renderer(console=console, colors=target.isatty())))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(LEVELS[level])
    for name in _PER_JOB_LOGGERS:
        logging.getLogger(name).setLevel(LEVELS["debug"] if level == "debug" else LEVELS["warning"])
    logging.captureWarnings(capture=True)


def keep_configured(**_: object) -> None:
    """Receiver for Celery's `setup_logging` signal: while one is connected Celery leaves logging alone."""


def _configure_structlog(level: str) -> None:
    structlog.configure(
        processors=[*_shared_processors(), ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.ExceptionRenderer(render_exception),
    ]


def _renderer(*, console: bool, colors: bool) -> Processor:
    if not console:
        return structlog.processors.JSONRenderer()
    # The default formatter would print the values of local variables.
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, timestamp_key="time"
    )


def _formatter(renderer: Processor) -> logging.Formatter:
    return _RedactingFormatter(
        foreign_pre_chain=[_add_task, *_shared_processors()],
        processors=[ProcessorFormatter.remove_processors_meta, renderer],
    )


def _add_task(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Put the task's id and name, which celery attaches to its records, into keys."""
    data = getattr(event["_record"], "data", None)
    if isinstance(data, dict):
        event.update(task_id=data.get("id"), task=data.get("name"))
    return event


class _RedactingFormatter(ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = redact(record)
        if record.name in _PER_JOB_LOGGERS and record.levelno == logging.INFO:
            line = logging.makeLogRecord(line.__dict__ | {"levelname": "DEBUG"})
        return super().format(line)


class _LineHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say that a line was lost; logging's own report would print the record's arguments."""
        error = sys.exc_info()[0]
        sys.stderr.write(f"a log line of {record.name} was lost: {error.__name__ if error else 'unknown'}\n")
