"""A message that is wrong as a whole fails under its id with its code; every other message is served."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.messages import GOOD_KWARGS, QUEUE, body_of, labels, message, push, refusal
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from celery import Celery

    from tests.services import WorkerProcess

WAIT_S = 30
TICKET = {"id": "1", "text": "my card"}


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(max_message_bytes=2_000_000, max_result_bytes=20_000)


@pytest.fixture(autouse=True)
def _neighbours_are_served(client: redis.Redis, worker: WorkerProcess) -> Iterator[None]:
    before, after = message(), message()
    push(client, before)
    yield
    push(client, after)
    assert labels(client, before["headers"]["id"]) == labels(client, after["headers"]["id"]) == ["billing"]
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0 == client.llen(QUEUE), WAIT_S, "nothing is left")
    assert worker.process.poll() is None


def with_ticket(**fields: object) -> dict[str, object]:
    return {"tickets": [TICKET, {"id": "2", "text": "refund"} | fields]}


REQUESTS = {
    "unknown field": (GOOD_KWARGS | {"tickts": []}, "unknown_field"),
    "unknown field of a ticket": (with_ticket(txt="refund"), "unknown_field"),
    "missing id": ({"tickets": [TICKET, {"text": "refund"}]}, "invalid_message"),
    "null id": (with_ticket(id=None), "invalid_message"),
    "number as id": (with_ticket(id=5), "invalid_message"),
    "empty id": (with_ticket(id=""), "invalid_message"),
    "id too long": (with_ticket(id="x" * 257), "invalid_message"),
    "lone surrogate in the id": (with_ticket(id="\ud800"), "invalid_message"),
    "duplicate id": ({"tickets": [TICKET, {"id": "2", "text": "refund"}, TICKET]}, "duplicate_id"),
    "two kinds of text": (with_ticket(subject="refund"), "invalid_message"),
    "no arguments": ({}, "invalid_message"),
    "no tickets": ({"tickets": []}, "no_tickets"),
    "10,001 tickets": ({"tickets": [{"id": str(n), "text": "a"} for n in range(10_001)]}, "too_many_tickets"),
    "tickets are null": ({"tickets": None}, "invalid_message"),
    "tickets are an object": ({"tickets": TICKET}, "invalid_message"),
    "tickets are text": ({"tickets": "my card"}, "invalid_message"),
    "a ticket is text": ({"tickets": [TICKET, "my card"]}, "invalid_message"),
    "a ticket is null": ({"tickets": [TICKET, None]}, "invalid_message"),
    "a ticket is a list": ({"tickets": [[TICKET]]}, "invalid_message"),
    "unknown model": (GOOD_KWARGS | {"model": "gpt"}, "unknown_model"),
    "empty model": (GOOD_KWARGS | {"model": ""}, "invalid_message"),
    "number as model": (GOOD_KWARGS | {"model": 5}, "invalid_message"),
    "top_k of 0": (GOOD_KWARGS | {"top_k": 0}, "invalid_message"),
    "top_k of 101": (GOOD_KWARGS | {"top_k": 101}, "invalid_message"),
    "text as top_k": (GOOD_KWARGS | {"top_k": "3"}, "invalid_message"),
    "true as top_k": (GOOD_KWARGS | {"top_k": True}, "invalid_message"),
    "unknown truncation": (GOOD_KWARGS | {"truncation": "tail"}, "invalid_message"),
    "threshold of 2": (GOOD_KWARGS | {"threshold": 2}, "invalid_message"),
    "NaN as threshold": (GOOD_KWARGS | {"threshold": float("nan")}, "invalid_message"),
    "threshold for a single-label model": (GOOD_KWARGS | {"threshold": 0.5}, "invalid_message"),
    "a version to come": (GOOD_KWARGS | {"schema_version": 2}, "invalid_message"),
    "result too large": ({"tickets": [{"id": f"{n:0256}", "text": "a"} for n in range(60)]}, "result_too_large"),
    "message too large": (with_ticket(text="a" * 2_000_000), "message_too_large"),
}


@pytest.mark.parametrize(("kwargs", "code"), REQUESTS.values(), ids=REQUESTS)
def test_a_wrong_request_fails(app: Celery, client: redis.Redis, kwargs: dict[str, Any], code: str) -> None:
    sent = app.send_task("classify.tickets", kwargs=kwargs, queue=QUEUE)

    assert refusal(client, sent.id).startswith(f"{code}: ")


def test_positional_arguments_fail(app: Celery, client: redis.Redis) -> None:
    sent = app.send_task("classify.tickets", args=[GOOD_KWARGS["tickets"]], queue=QUEUE)

    assert refusal(client, sent.id).startswith("invalid_message: ")


def test_an_unknown_task_fails(app: Celery, client: redis.Redis) -> None:
    sent = app.send_task("classify.everything", kwargs=GOOD_KWARGS, queue=QUEUE)

    assert refusal(client, sent.id).startswith("unknown_task: ")


BODIES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "not_json"),
    "no JSON": ("my card", "not_json"),
    "cut off": (body_of()[:-3], "not_json"),
    "two documents": (body_of() * 2, "not_json"),
    "not UTF-8": (b"\xff\xfe" + body_of().encode(), "not_json"),
    "NULs": ("\0" * 100, "not_json"),
    "nested too deep": ("[" * 100_000, "not_json"),
    "a typed value that is none": ('{"__type__": "decimal", "__value__": "abc"}', "not_json"),
    "number": ("5", "invalid_message"),
    "text": ('"my card"', "invalid_message"),
    "null": ("null", "invalid_message"),
    "object": ("{}", "invalid_message"),
    "empty list": ("[]", "invalid_message"),
    "list of 2": ("[[], {}]", "invalid_message"),
    "list of 4": ("[[], {}, {}, {}]", "invalid_message"),
    "args are an object": (body_of(args={}), "invalid_message"),
    "kwargs are a list": (body_of([]), "invalid_message"),
    "kwargs are null": (body_of(None), "invalid_message"),
    "embed is a list": (body_of(embed=[]), "invalid_message"),
    "callbacks are a number": (body_of(embed={"callbacks": 5}), "invalid_message"),
    "chain of texts": (body_of(embed={"chain": ["x"]}), "invalid_message"),
    "chord is text": (body_of(embed={"chord": "x"}), "invalid_message"),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES)
def test_a_wrong_body_fails(client: redis.Redis, body: str | bytes, code: str) -> None:
    written = message(body)
    push(client, written)

    assert refusal(client, written["headers"]["id"]).startswith(f"{code}: ")


ENVELOPES = {
    "pickle": (message(**{"content-type": "application/x-python-serialize"}), "wrong_content_type"),
    "yaml": (message(**{"content-type": "application/x-yaml"}), "wrong_content_type"),
    "text": (message(**{"content-type": "text/plain"}), "wrong_content_type"),
    "no content type": (message(**{"content-type": None}), "wrong_content_type"),
    "list as content type": (message(**{"content-type": [1]}), "wrong_content_type"),
    "number as content encoding": (message(**{"content-encoding": 5}), "not_json"),
    "null as body": (message(body=None) | {"body": None}, "not_json"),
    "number as body": (message() | {"body": 5}, "not_json"),
    "object as body": (message() | {"body": {"tickets": []}}, "not_json"),
    "no base64": (message() | {"body": "a"}, "not_json"),
    "unknown body encoding": (message(properties={"body_encoding": "rot13"}), "not_json"),
    "not compressed": (message(headers={"compression": "gzip"}), "not_json"),
    "unknown compression": (message(headers={"compression": "rar"}), "not_json"),
    "large once decompressed": (
        message(zlib.compress(b" " * 50_000_000), headers={"compression": "application/x-gzip"}),
        "message_too_large",
    ),
    "ETA that is no time": (message(headers={"eta": "soon"}), "invalid_message"),
    "number as expiry": (message(headers={"expires": 5}), "invalid_message"),
    "three time limits": (message(headers={"timelimit": [1, 2, 3]}), "invalid_message"),
    "text as time limit": (message(headers={"timelimit": "no"}), "invalid_message"),
    "text as retries": (message(headers={"retries": "no"}), "invalid_message"),
    "list as group": (message(headers={"group": [1]}), "invalid_message"),
    "list as shadow": (message(headers={"shadow": [1]}), "invalid_message"),
    "lone surrogate in the shadow": (message(headers={"shadow": "\ud800"}), "invalid_message"),
    "number as stamped headers": (message(headers={"stamped_headers": 5}), "invalid_message"),
    "list of a list as stamped headers": (message(headers={"stamped_headers": [[1]]}), "invalid_message"),
    "text as ignore_result": (message(headers={"ignore_result": "no"}), "invalid_message"),
    "list as task": (message(headers={"task": ["x"]}), "invalid_message"),
    "empty task": (message(headers={"task": ""}), "invalid_message"),
}


@pytest.mark.parametrize(("written", "code"), ENVELOPES.values(), ids=ENVELOPES)
def test_a_wrong_envelope_fails(client: redis.Redis, written: dict[str, Any], code: str) -> None:
    push(client, written)

    assert refusal(client, written["headers"]["id"]).startswith(f"{code}: ")


@pytest.mark.parametrize("task_id", [None, "", 5, ["x"], "\ud800"], ids=repr)
def test_a_message_without_a_usable_id_is_logged_and_dropped(
    client: redis.Redis, worker: WorkerProcess, task_id: object
) -> None:
    refused = worker.lines.count("message.refused")
    push(client, message(headers={"id": task_id}))

    wait_until(lambda: worker.lines.count("message.refused") > refused, WAIT_S, "it is logged")


ENTRIES = {
    "nothing": b"",
    "bytes": b"\0\xff\xfe",
    "text": b"my card",
    "null": b"null",
    "number": b"5",
    "list": b"[1, 2]",
    "nested too deep": b"[" * 200_000,
    "object": b"{}",
    "a typed value that is none": b'{"__type__": "decimal", "__value__": "abc"}',
    "no body": json.dumps({"headers": {}}).encode(),
    "headers are a list": json.dumps(message() | {"headers": [1]}).encode(),
    "headers are text": json.dumps(message() | {"headers": "x"}).encode(),
    "properties are a list": json.dumps(message() | {"properties": [1]}).encode(),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_that_is_no_message_is_put_aside_as_it_came(client: redis.Redis, entry: bytes) -> None:
    push(client, entry)

    assert client.blpop(f"batchmill:unreadable:{QUEUE}", timeout=WAIT_S)[1] == entry
