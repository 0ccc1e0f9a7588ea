"""What a message must look like before Celery may see it: the headers and body of its task protocols 1 and 2.

Celery trusts its producers. A time limit of three numbers raises out of its event loop and ends the worker; a chain of
strings raises after the work is done, and the task has no end. A hand-written message can hold any of it, so shapes and
types are checked once, at the door. It does not know what the arguments of a task mean.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kombu.utils.json import loads as kombu_loads
from pydantic_core import from_json

from schemas.errors import ErrorCode, MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

EMBEDDED: Final = ("callbacks", "errbacks", "chain", "chord")

_TYPED: Final = b"__type__"
_TEXTS: Final = ("shadow", "root_id", "parent_id", "group")
_TYPES: Final[Mapping[str, type]] = {
    **dict.fromkeys(_TEXTS, str),
    "retries": int,
    "replaced_task_nesting": int,
    "ignore_result": bool,
    "stamped_headers": list,
    "stamps": dict,
    "timelimit": list,
}


def read_envelope(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return what JSON says.

    Raises:
        ValueError, RecursionError: it is none.
    """
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:  # what only the standard library reads, such as a lone surrogate
        return json.loads(text)


def read_body(text: bytes | str) -> Any:  # noqa: ANN401 - any JSON
    """Return what kombu reads from a body, for a fraction of the time.

    Raises:
        ValueError, RecursionError: it is no JSON, or holds a type that kombu does not know.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if _TYPED not in data:  # kombu's own encoding of dates and the like
            return from_json(data, cache_strings="keys")
    except ValueError:
        pass
    return kombu_loads(text)


def task_name(headers: Mapping[str, Any], payload: object) -> str:
    """Return the task of a message that is well-formed by protocol 2 or 1.

    Raises:
        MessageError: Celery would stumble over it; the text names what is wrong and quotes no value.
    """
    if "task" not in headers and isinstance(payload, dict):
        headers, payload = payload, _body_of_protocol_1(payload)
    _check_headers(headers)
    _check_body(payload)
    name: str = headers["task"]
    return name


def task_id(headers: Mapping[str, Any], payload: object) -> str | None:
    """Return the id that a failure can be recorded under, if the message has one; `payload` may be None."""
    source = payload if "id" not in headers and isinstance(payload, dict) else headers
    value = source.get("id")
    return value if isinstance(value, str) and value and _is_unicode(value) else None


def _check_headers(headers: Mapping[str, Any]) -> None:
    for name in ("task", "id"):
        if not isinstance(headers.get(name), str) or not headers[name]:
            raise _invalid(f"the header {name!r} must be a non-empty string")
    for name, kind in _TYPES.items():
        value = headers.get(name)
        if value is not None and type(value) is not kind:
            raise _invalid(f"the header {name!r} must be of type {kind.__name__}, or null")
    if not _is_unicode("".join([headers["task"], headers["id"], *(headers.get(name) or "" for name in _TEXTS)])):
        raise _invalid("a header holds a lone surrogate")
    limits = headers.get("timelimit")
    if limits and not (len(limits) == 2 and all(limit is None or type(limit) in {int, float} for limit in limits)):  # noqa: PLR2004 - hard and soft
        raise _invalid("the header 'timelimit' must be a pair of numbers or nulls")
    if not all(isinstance(name, str) for name in headers.get("stamped_headers") or ()):
        raise _invalid("the header 'stamped_headers' must be a list of strings")


def _body_of_protocol_1(payload: Mapping[str, Any]) -> list[Any]:
    return [payload.get("args", []), payload.get("kwargs", {}), {name: payload.get(name) for name in EMBEDDED}]


def _check_body(body: object) -> None:
    match body:
        case [list(), dict(), dict() | None as embed]:
            _check_embed(embed or {})
        case _:
            raise _invalid("the body must be [list of args, object of kwargs, object]")


def _check_embed(embed: Mapping[str, Any]) -> None:
    for name in ("callbacks", "errbacks", "chain"):
        signatures = embed.get(name)
        if signatures is not None and not (isinstance(signatures, list) and all(map(_is_signature, signatures))):
            raise _invalid(f"{name} must be a list of task signatures, or null")
    if embed.get("chord") is not None and not _is_signature(embed["chord"]):
        raise _invalid("chord must be a task signature, or null")


def _is_signature(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("task"), str)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _invalid(text: str) -> MessageError:
    return MessageError(ErrorCode.INVALID_MESSAGE, text)
