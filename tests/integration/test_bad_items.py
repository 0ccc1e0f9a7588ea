"""One bad ticket gets its error code; its neighbours in the message, and other messages, get their labels."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from schemas.results import ClassifyResult
from tests.messages import QUEUE
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from celery import Celery
    from celery.result import AsyncResult

    from schemas.results import TicketResult
    from tests.services import WorkerProcess

WAIT_S = 30
TRUNCATED_CHARACTERS = 1_000
GOOD = [{"id": "first", "text": "my card is broken"}, {"id": "last", "subject": "router", "body": "screen broken"}]

BAD = {
    "null": ({"text": None}, "null_text"),
    "null subject": ({"subject": None, "body": "my card"}, "null_text"),
    "integer": ({"text": 5}, "not_text"),
    "number": ({"text": 5.5}, "not_text"),
    "huge number": ({"text": 10**300}, "not_text"),
    "boolean": ({"text": True}, "not_text"),
    "list": ({"text": ["my card"]}, "not_text"),
    "object": ({"text": {"my": "card"}}, "not_text"),
    "deep list": ({"text": json.loads("[" * 90 + "]" * 90)}, "not_text"),
    "bytes": ({"text": b"my card"}, "not_text"),
    "bytes that are no text": ({"text": b"\xff\xfe"}, "not_text"),
    "date": ({"text": datetime(2025, 5, 5, tzinfo=UTC)}, "not_text"),
    "number as body": ({"subject": "my card", "body": 5}, "not_text"),
    "empty": ({"text": ""}, "empty_text"),
    "white space": ({"text": " \t\r\n\u00a0\u3000"}, "empty_text"),
    "zero width": ({"text": "\u200b\u200d\ufeff"}, "empty_text"),
    "NULs": ({"text": "\0\0\0"}, "empty_text"),
    "1 MB of blanks": ({"text": " " * 1_000_000}, "empty_text"),
    "blank subject and body": ({"subject": " ", "body": "\n"}, "empty_text"),
    "nothing that the tokenizer knows": ({"text": "日本語"}, "empty_text"),
    "1 MB in one word": ({"text": "a" * 1_000_000}, "empty_text"),  # to this tokenizer a word has 100 letters at most
    "special tokens": ({"text": "[PAD] [SEP] [CLS]"}, "empty_text"),
    "lone surrogate": ({"text": "my \ud800 card"}, "invalid_unicode"),
    "swapped surrogates": ({"text": "\udc00\ud800"}, "invalid_unicode"),
    "no text at all": ({}, "missing_text"),
    "NaN from the model": ({"text": "my card is nan"}, "model_output_not_finite"),
    "a batch that hangs": ({"text": "endless"}, "inference_timeout"),
}

ODD = {
    "NUL inside": "my\0card",
    "emoji": "my card 😀👩‍👩‍👧🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "combining marks": "m\u0301y\u0327 c\u0335ard" + "\u0301" * 500,
    "right to left": "\u202emy card\u202c שלום",
    "control characters": "my\x01\x1b[31m card\x7f",
    "1 MB in one line": "my card " * 131_072,
    "10,000 tokens": "my " * 10_000,
    "a chain of 10,000 tokens": "my-" * 5_000,
    "markup": "<script>alert('my card')</script>",
    "looks like an option": "--help",
    "a format string": "%s {0} {my} %(card)s",
}


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(batch_timeout_s=1)


@pytest.fixture(autouse=True)
def _nothing_is_left(client: redis.Redis, worker: WorkerProcess) -> Iterator[None]:
    yield
    wait_until(lambda: client.hlen("batchmill:unacked:classify") == 0 == client.llen(QUEUE), WAIT_S, "nothing is left")
    assert worker.process.poll() is None


def send(app: Celery, tickets: list[dict[str, Any]], **options: object) -> AsyncResult:
    return app.send_task("classify.tickets", kwargs={"tickets": tickets} | options, queue=QUEUE)


def received(sent: AsyncResult) -> list[TicketResult]:
    return ClassifyResult.model_validate(sent.get(timeout=WAIT_S)).results


GOOD_LABELS = {"first": "billing", "last": "access"}


def labelled(results: list[TicketResult]) -> dict[str, str | None]:
    return {one.id: one.label for one in results}


@pytest.mark.parametrize(("ticket", "code"), BAD.values(), ids=BAD)
def test_a_bad_ticket_fails_alone(app: Celery, ticket: dict[str, object], code: str) -> None:
    before = send(app, GOOD)
    mixed = send(app, [GOOD[0], {"id": "bad"} | ticket, GOOD[1]])
    after = send(app, GOOD)

    first, bad, last = received(mixed)
    assert (bad.id, bad.error and bad.error.code, bad.label, bad.tokens > 0) == (
        "bad",
        code,
        None,
        code in {"model_output_not_finite", "inference_timeout"},
    )
    for neighbours in ([first, last], received(before), received(after)):
        assert labelled(neighbours) == GOOD_LABELS


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_an_odd_text_is_classified(app: Celery, text: str) -> None:
    first, odd, last = received(send(app, [GOOD[0], {"id": "odd", "text": text}, GOOD[1]]))

    assert odd.error is None
    assert odd.label
    assert odd.truncated is (len(text) > TRUNCATED_CHARACTERS)
    assert labelled([first, last]) == GOOD_LABELS


def test_a_message_of_bad_tickets_only_succeeds_with_their_codes(app: Celery) -> None:
    tickets = [{"id": name} | ticket for name, (ticket, code) in BAD.items() if code != "inference_timeout"]

    assert {one.id: one.error and one.error.code for one in received(send(app, tickets))} == {
        name: code for name, (_, code) in BAD.items() if code != "inference_timeout"
    }


@pytest.mark.parametrize("identifier", ["ü😀", "a b\n", "0", "x" * 256, "\0"], ids=repr)
def test_any_identifier_comes_back(app: Celery, identifier: str) -> None:
    (one,) = received(send(app, [{"id": identifier, "text": "my card"}]))

    assert one.id == identifier


def test_ten_thousand_tickets_come_back_in_order(app: Celery) -> None:
    tickets = [{"id": str(number), "text": None if number % 3 == 0 else "my card"} for number in range(10_000)]

    results = received(send(app, tickets))

    assert [one.id for one in results] == [ticket["id"] for ticket in tickets]
    assert {one.error is None for one in results[1::3] + results[2::3]} == {True}
    assert {one.error and one.error.code for one in results[::3]} == {"null_text"}
