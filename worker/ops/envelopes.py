"""Opens messages as they lie in Redis, for people: what the envelope says, and whether a ticket is in it.

A worker reads messages through Celery; this reads what no worker has taken, or has given up, and must not stumble over
any of it.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery.states import FAILURE
from kombu.compression import decompress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a message says about itself; holds no text of a ticket. None where it does not say.

    Attributes:
        task_id, task: its id and the task that it is for.
        priority: 0 to 9.
        retries: how often its task has retried.
        enqueued_at_s: when it was enqueued, in Unix seconds.
        eta, expires: as the producer wrote them.
        origin: the producer's own name.
    """

    task_id: str | None
    task: str | None
    priority: int | None
    retries: int | None
    enqueued_at_s: float | None
    eta: str | None
    expires: str | None
    origin: str | None


def describe(message: bytes) -> Envelope | None:
    """Return what a message says about itself; None if it is no message."""
    envelope = _parse(message)
    if envelope is None:
        return None
    headers, properties = _section(envelope, "headers"), _section(envelope, "properties")
    return Envelope(
        task_id=_of(headers.get("id") or properties.get("correlation_id"), str),
        task=_of(headers.get("task"), str),
        priority=_of(properties.get("priority"), int),
        retries=_of(headers.get("retries"), int),
        enqueued_at_s=_of(headers.get("enqueued_at"), float, int),
        eta=_of(headers.get("eta"), str),
        expires=_of(headers.get("expires"), str),
        origin=_of(headers.get("origin"), str),
    )


def body(message: bytes) -> object:
    """Return the decoded body, which holds the tickets; None if it cannot be decoded."""
    envelope = _parse(message)
    if envelope is None:
        return None
    content, headers = envelope["body"], _section(envelope, "headers")
    try:
        if _section(envelope, "properties").get("body_encoding") == "base64":
            content = base64.b64decode(content)
        if headers.get("compression"):
            content = decompress(content, headers["compression"])
        return json.loads(content)
    except Exception:  # noqa: BLE001 - whatever a producer's bytes make a decoder raise: it is no body
        return None


def holds_ticket(message: bytes, ticket_id: str) -> bool:
    """Say whether a ticket is in a message; for bytes that are no message, whether its id is anywhere in them."""
    content = body(message)
    return _has_ticket(content, ticket_id) if content is not None else _occurs(message, ticket_id)


def mentions(result: bytes, ticket_id: str) -> bool:
    """Say whether a ticket is in a stored result, or quoted in a failure's text."""
    try:
        meta = json.loads(result)
    except (ValueError, RecursionError):
        return False  # somebody else's
    has_failed = isinstance(meta, dict) and meta.get("status") == FAILURE
    return _has_ticket(meta, ticket_id) or (has_failed and _quotes(meta, ticket_id))


def quotations(ticket_id: str) -> list[str]:
    """Return texts of which a stored JSON holds at least one if it mentions the ticket, and maybe if it does not."""
    return sorted(
        {
            *(json.dumps(ticket_id, ensure_ascii=ascii_only) for ascii_only in (True, False)),
            *(json.dumps(repr(ticket_id), ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)),
        }
    )


def _has_ticket(value: object, ticket_id: str) -> bool:
    return any(isinstance(one, dict) and one.get("id") == ticket_id for one in _walk(value))


def _quotes(value: object, ticket_id: str) -> bool:
    quoted = repr(ticket_id)  # as `schemas.messages` quotes a duplicate id
    return any(isinstance(one, str) and quoted in one for one in _walk(value))


def _occurs(content: bytes, ticket_id: str) -> bool:
    """Look for an id in bytes of any kind, plain or in base64, wherever that may begin."""
    wanted = {json.dumps(ticket_id, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (True, False)}
    runs = [run[shift:] for run in _BASE64.findall(content) for shift in range(4)]
    decoded = [base64.b64decode(run[: len(run) - len(run) % 4]) for run in runs]
    return any(one in text for one in wanted for text in (content, *decoded))


def _walk(value: object) -> Iterator[object]:
    """Yield a JSON value and everything in it, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _parse(message: bytes) -> dict[str, Any] | None:
    try:
        envelope = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return envelope if isinstance(envelope, dict) and "body" in envelope else None


def _section(envelope: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = envelope.get(name)
    return section if isinstance(section, dict) else {}


def _of(value: object, *kinds: type) -> Any:  # noqa: ANN401 - one of `kinds`, or None
    return value if type(value) in kinds else None
