"""Whatever a message holds, it has exactly one end, and the worker lives: properties held against the real worker."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import ErrorCode
from schemas.messages import ClassifyTickets
from schemas.results import ClassifyResult
from tests.messages import QUEUE, body_of, message, push
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.services import WorkerProcess

PARKED = f"batchmill:unreadable:{QUEUE}"
bounded = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

text = st.text(st.characters(), max_size=12) | st.sampled_from(["my card", "", " ", "nan", "\ud800", "\0"])
scalar = st.none() | st.booleans() | st.integers() | st.floats() | text
anything = st.recursive(scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))

fields = st.fixed_dictionaries(
    {},
    optional={
        "id": text | st.sampled_from("abc") | scalar,
        "text": text | anything,
        "subject": text | anything,
        "body": text | anything,
        "txt": text,
    },
)
good_ticket = st.fixed_dictionaries({"id": text.filter(bool), "text": text})
requests = st.fixed_dictionaries(
    {"tickets": st.lists(good_ticket | fields, max_size=4) | anything},
    optional={
        "model": st.sampled_from(["tiny", "", "other"]) | scalar,
        "top_k": st.integers(-1, 102) | scalar,
        "truncation": st.sampled_from(["head", "head_tail", "tail"]) | scalar,
        "threshold": st.floats() | scalar,
        "schema_version": st.integers(0, 2) | scalar,
    },
)
signature = st.fixed_dictionaries({}, optional={"task": text | scalar, "args": anything, "options": anything})
embeds = st.fixed_dictionaries(
    {},
    optional={
        "callbacks": st.lists(signature, max_size=2) | anything,
        "errbacks": st.lists(signature, max_size=2) | anything,
        "chain": st.lists(signature, max_size=2) | anything,
        "chord": signature | anything,
    },
)
HEADERS = (
    *("eta", "expires", "retries", "timelimit", "group", "group_index", "shadow", "root_id", "parent_id", "origin"),
    *("argsrepr", "kwargsrepr", "stamped_headers", "stamps", "replaced_task_nesting", "ignore_result", "compression"),
    *("lang", "meth", "enqueued_at", "chord", "callbacks", "args", "kwargs", "hostname", "delivery_info", "is_eager"),
)
PROPERTIES = ("body_encoding", "delivery_info", "delivery_tag", "priority", "reply_to", "correlation_id")


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker()


@contextmanager
def recording(client: redis.Redis) -> Iterator[list[dict[str, Any]]]:
    """Collect, until the block ends, what is recorded of any task: each record is published once."""
    recorded: list[dict[str, Any]] = []
    with client.pubsub() as listening:
        listening.psubscribe("celery-task-meta-*")
        assert listening.get_message(timeout=10)["type"] == "psubscribe"
        yield recorded
        while (published := listening.get_message(timeout=0.02)) is not None:
            recorded.append(json.loads(published["data"]))


def settle(client: redis.Redis, worker: WorkerProcess) -> None:
    """Wait until all that is on the queue has been taken and is done with."""
    last = message()
    push(client, last)
    wait_until(lambda: client.exists(f"celery-task-meta-{last['headers']['id']}"), what="the last message's end")
    wait_until(lambda: client.llen(QUEUE) == 0 == client.hlen("batchmill:unacked:classify"), what="nothing is left")
    assert worker.process.poll() is None


def ends(recorded: list[dict[str, Any]], task_id: str) -> list[str]:
    return [one["status"] for one in recorded if one["task_id"] == task_id]


@bounded
@given(requests=st.lists(requests, min_size=1, max_size=5))
def test_any_request_has_one_end(client: redis.Redis, worker: WorkerProcess, requests: list[dict[str, Any]]) -> None:
    written = {(sent := message(body_of(kwargs)))["headers"]["id"]: (sent, kwargs) for kwargs in requests}
    with recording(client) as recorded:
        for sent, _ in written.values():
            push(client, sent)
        settle(client, worker)

    assert all(len(ends(recorded, task_id)) == 1 for task_id in written)
    for one in recorded:
        if one["task_id"] not in written:
            continue  # the one that `settle` sent
        _, kwargs = written[one["task_id"]]
        if one["status"] == "SUCCESS":
            result = ClassifyResult.model_validate_json(json.dumps(one["result"]))
            assert len(result.results) == len(ClassifyTickets.model_validate(json.loads(json.dumps(kwargs))).tickets)
        else:
            assert one["result"]["exc_type"] == "MessageError"
            assert one["result"]["exc_message"][0].partition(":")[0] in set(ErrorCode)


@bounded
@given(embed=embeds)
def test_any_callback_chain_or_chord_leaves_one_end(
    client: redis.Redis, worker: WorkerProcess, embed: dict[str, Any]
) -> None:
    written = message(body_of(embed=embed), headers={"group": "some-group"})
    with recording(client) as recorded:
        push(client, written)
        settle(client, worker)

    assert len(ends(recorded, written["headers"]["id"])) == 1


@bounded
@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), anything, max_size=4),
    properties=st.dictionaries(st.sampled_from(PROPERTIES), anything, max_size=3),
    envelope=st.dictionaries(st.sampled_from(["body", "content-type", "content-encoding"]), anything, max_size=1),
)
def test_any_envelope_has_one_end(
    client: redis.Redis,
    worker: WorkerProcess,
    headers: dict[str, Any],
    properties: dict[str, Any],
    envelope: dict[str, Any],
) -> None:
    written = message(headers=headers, properties=properties) | envelope
    with recording(client) as recorded:
        push(client, written)
        settle(client, worker)

    found = ends(recorded, written["headers"]["id"])
    assert len(found) == 1 or (found == [] and headers.get("ignore_result") is True)


@bounded
@given(entry=st.binary(max_size=40) | anything.map(json.dumps).map(str.encode))
def test_any_bytes_are_put_aside(client: redis.Redis, worker: WorkerProcess, entry: bytes) -> None:
    push(client, entry)
    settle(client, worker)

    assert client.blpop(PARKED, timeout=10)[1] == entry


@bounded
@given(cut=st.integers(0, 500), bit=st.integers(0, 7))
def test_a_message_with_a_flipped_bit_does_no_harm(
    client: redis.Redis, worker: WorkerProcess, cut: int, bit: int
) -> None:
    entry = bytearray(json.dumps(message()).encode())
    entry[cut % len(entry)] ^= 1 << bit
    push(client, bytes(entry))
    settle(client, worker)
    client.delete(PARKED)
