"""What of somebody else's log record or exception may be shown: no text of a ticket ever is.

Celery and kombu log task arguments, message bodies and results, and an exception of any library may quote its
input. What passes is therefore listed, and the rest is withheld: identifiers and numbers of a record, and the
texts of exceptions that come from this project or speak of infrastructure. Frames and types are always shown.
It knows nothing of levels, renderers or destinations.
"""

import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from types import TracebackType

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

WITHHELD = "(withheld)"
_GUARDED_LOGGERS = ("celery", "kombu", "amqp")
_OPEN_KEYS = frozenset({"id", "name", "runtime", "hostname"})
_OWN_ERROR = "MessageError("  # celery gives the repr of a task's exception; ours quotes no input
_IDENTIFIER = re.compile(r"[\w.@:/*-]{1,256}")  # task ids, node names, addresses; no sentence passes
_TRUSTED_PACKAGES = frozenset({"worker", "tasks", "schemas", "kombu", "redis", "onnxruntime"})
_TRUSTED_TYPES = (OSError, ImportError, MemoryError, KeyboardInterrupt, SystemExit)


class _Withheld:
    """Stands in for an argument; whatever conversion asks for it gets the same word."""

    def __repr__(self) -> str:
        return WITHHELD


_STAND_IN = _Withheld()


def redact(record: logging.LogRecord) -> logging.LogRecord:
    """Return `record`, or a copy with identifiers and numbers as its only arguments if it is celery's."""
    if record.name.partition(".")[0] not in _GUARDED_LOGGERS or not record.args:
        return record
    guarded = logging.makeLogRecord(record.__dict__)
    if isinstance(record.args, Mapping):
        guarded.args = {key: _shown_of_task(key, value) for key, value in record.args.items()}
    else:
        guarded.args = tuple(map(_shown, record.args))
    return guarded


def render_exception(exc_info: ExcInfo) -> str:
    """Return types, frames and trusted texts of an exception and its causes, oldest first; never locals."""
    return "\n".join(_render_one(error) for error in reversed(list(_chain(exc_info[1]))))


def exception_text(error: BaseException) -> str:
    """Return what an exception says if its kind never quotes input, else that it is withheld."""
    package = type(error).__module__.partition(".")[0]
    trusted = package in _TRUSTED_PACKAGES or isinstance(error, _TRUSTED_TYPES)
    return str(error) if trusted else WITHHELD


def _shown_of_task(key: str, value: object) -> object:
    """Return a value of the dict with which celery formats its lines per task, or the stand-in."""
    if key == "description" or (key == "exc" and isinstance(value, str) and value.startswith(_OWN_ERROR)):
        return value  # celery's own words for what happened, our own for why
    return _shown(value) if key in _OPEN_KEYS else _STAND_IN


def _shown(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str) and _IDENTIFIER.fullmatch(value):
        return value
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {exception_text(value)}"
    return _STAND_IN


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _render_one(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return f"{frames}{kind}: {exception_text(error)}"
