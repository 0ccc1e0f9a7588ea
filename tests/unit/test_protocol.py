"""What of a message's shape Celery may see: every protocol that Celery writes, and nothing that it stumbles over."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain, chord, signature
from kombu.utils.json import dumps, loads

from schemas.errors import ErrorCode, MessageError
from worker.protocol import read_body, read_envelope, task_id, task_name

HEADERS = {"task": "classify.tickets", "id": "7"}
BODY = [[], {}, {}]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"countdown": 5, "expires": 60, "priority": 3, "ignore_result": True, "shadow": "other"},
        {"time_limit": 5, "soft_time_limit": 4.5, "retries": 2, "group_id": "g", "root_id": "r", "parent_id": "p"},
        {"link": signature("a"), "link_error": [signature("b"), signature("c")]},
        {"chain": [signature("a"), chain(signature("b"), signature("c"))]},
        {"chord": chord([signature("a")], signature("b"))},
        {"stamped_headers": ["shop"], "shop": "north"},
    ],
    ids=["plain", "schedule", "limits and family", "links", "chain", "chord", "stamps"],
)
@pytest.mark.parametrize("protocol", [1, 2])
def test_what_celery_writes_passes(protocol: int, options: dict[str, Any]) -> None:
    app = Celery(set_as_current=False)
    app.conf.task_protocol = protocol
    written = app.amqp.create_task_message("7", "classify.tickets", kwargs={"tickets": []}, **options)
    headers, body = loads(dumps([written.headers, written.body]))

    assert task_name(headers, body) == "classify.tickets"
    assert task_id(headers, body) == "7"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY),
        ({"task": "classify.tickets"}, BODY),
        (HEADERS | {"id": ""}, BODY),
        (HEADERS | {"id": 7}, BODY),
        (HEADERS | {"id": "\ud800"}, BODY),
        (HEADERS | {"retries": True}, BODY),
        (HEADERS | {"timelimit": [1]}, BODY),
        (HEADERS | {"timelimit": [1, "2"]}, BODY),
        (HEADERS | {"stamped_headers": [1]}, BODY),
        (HEADERS | {"root_id": "\udfff"}, BODY),
        (HEADERS, None),
        (HEADERS, {}),
        (HEADERS, [[], {}]),
        (HEADERS, [{}, {}, {}]),
        (HEADERS, [[], [], {}]),
        (HEADERS, [[], {}, []]),
        (HEADERS, [[], {}, {"callbacks": {}}]),
        (HEADERS, [[], {}, {"errbacks": [{"task": 5}]}]),
        (HEADERS, [[], {}, {"chain": "x"}]),
        (HEADERS, [[], {}, {"chord": []}]),
        ({}, {"task": "classify.tickets", "id": "7", "args": {}}),
        ({}, {"task": "classify.tickets", "id": "7", "callbacks": 5}),
    ],
    ids=repr,
)
def test_what_celery_would_stumble_over_is_refused(headers: dict[str, Any], body: object) -> None:
    with pytest.raises(MessageError) as refused:
        task_name(headers, body)

    assert refused.value.code is ErrorCode.INVALID_MESSAGE


def test_a_refusal_quotes_no_value() -> None:
    for headers in ({"timelimit": ["canary"]}, {"group": ["canary"]}, {"stamped_headers": [["canary"]]}):
        with pytest.raises(MessageError) as refused:
            task_name(HEADERS | headers, BODY)
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "payload", "found"),
    [
        (HEADERS, None, "7"),
        ({}, {"id": "7"}, "7"),
        ({"id": "8"}, {"id": "7"}, "8"),
        ({}, None, None),
        ({"id": None}, BODY, None),
        ({"id": "\ud800"}, BODY, None),
    ],
)
def test_the_id_is_found_where_there_is_one(headers: dict[str, Any], payload: object, found: str | None) -> None:
    assert task_id(headers, payload) == found


@pytest.mark.parametrize(
    "body",
    [
        b'[[], {"tickets": [{"id": "1", "text": "caf\xc3\xa9 \\u20ac"}]}, null]',
        '[["\u00e4"], {}, null]',
        b'{"a": 1, "a": 2.5e3, "b": [true, false, null], "c": -0.0}',
        b'"\\ud800"',
        '["\ud800"]',
        b"[NaN, Infinity]",
        b"[" * 500 + b"]" * 500,
        b'{"when": {"__type__": "datetime", "__value__": "2026-11-30T00:00:00"}}',
        b"12345678901234567890123",
    ],
    ids=["bytes", "text", "numbers", "surrogate", "bare surrogate", "not finite", "deep", "typed", "large"],
)
def test_a_body_is_read_as_kombu_reads_it(body: str | bytes) -> None:
    assert repr(read_body(body)) == repr(loads(body))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": "\x01"}', b'{"a": {"__type__": "odd", "__value__": 1}}'])
def test_a_body_that_kombu_cannot_read_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any kind of it
        read_body(body)


def test_an_envelope_may_hold_what_only_the_standard_library_reads() -> None:
    assert read_envelope(b'{"headers": {"id": "\\ud800"}}') == {"headers": {"id": "\ud800"}}
