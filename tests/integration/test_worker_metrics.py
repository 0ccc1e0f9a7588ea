"""What a real worker counts, read as a scraper reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from schemas.names import TASK_BULK_CLASSIFY
from tests.pages import Scrape
from tests.services import WorkerProcess, free_port, wait_until
from worker import keys
from worker.metrics import CATALOGUE, PIXELS, Side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis
    from celery import Celery
    from celery.result import AsyncResult

WAIT_S = 30


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def measured(start_worker: Callable[..., WorkerProcess], port: int) -> WorkerProcess:
    return start_worker(http_port=port, lease_s=3, batch_timeout_s=1.5)


def send(app: Celery, *texts: object, **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    tickets = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    return app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify", **options)


def wait_for(port: int, condition: Callable[[Scrape], bool]) -> Scrape:
    """Wait for a scrape of which something is true: a result is there a moment before it is counted."""
    last: list[Scrape] = []

    def holds() -> bool:
        last.append(Scrape(port))
        return condition(last[-1])

    wait_until(holds, WAIT_S, "the metrics")
    return last[-1]


def test_what_ended_is_counted_by_how_it_ended(measured: WorkerProcess, port: int, app: Celery) -> None:
    del measured
    before = Scrape(port)
    done = send(app, "my card", "my account", None, "nan").get(timeout=WAIT_S)
    send(app, *[]).get(timeout=WAIT_S, propagate=False)  # no tickets: fails as a whole
    send(app, "my card", expires=datetime.now(UTC) - timedelta(seconds=5)).get(timeout=WAIT_S, propagate=False)
    app.send_task("my.secret", queue="classify").get(timeout=WAIT_S, propagate=False)
    held = send(app, "endless")
    wait_until(lambda: Scrape(port)["batchmill_held_messages", "classify"] == 1, WAIT_S, "it is held")
    called_off = send(app, "my card")
    app.control.revoke(called_off.id)
    held.get(timeout=WAIT_S)
    called_off.get(timeout=WAIT_S, propagate=False)

    after = wait_for(
        port,
        lambda seen: (
            seen["batchmill_jobs_total", "cancelled", "classify.tickets"] > 0
            and seen["batchmill_items_total", "inference_timeout", "classify.tickets"] > 0
        ),
    )

    def more(*key: str) -> float:
        return after[key] - before[key]

    assert more("batchmill_jobs_total", "succeeded", "classify.tickets") == 2
    assert more("batchmill_jobs_total", "failed", "classify.tickets") == 1
    assert more("batchmill_jobs_total", "expired", "classify.tickets") == 1
    assert more("batchmill_jobs_total", "cancelled", "classify.tickets") == 1
    assert more("batchmill_jobs_total", "failed", "refused") == 1
    assert more("batchmill_items_total", "ok", "classify.tickets") == 2
    assert more("batchmill_items_total", "null_text", "classify.tickets") == 1
    assert more("batchmill_items_total", "model_output_not_finite", "classify.tickets") == 1
    assert more("batchmill_items_total", "inference_timeout", "classify.tickets") == 1
    labels = {label for label in (one["label"] for one in done["results"]) if label}
    assert sum(more("batchmill_labels_total", label, "tiny") for label in labels) == 2
    assert more("batchmill_stage_seconds_count", "queue_wait") == 2  # the message without tickets met no batch
    assert more("batchmill_busy_seconds_total", "tiny") > 1
    assert more("batchmill_real_units_total", "tiny") <= more("batchmill_padded_units_total", "tiny")
    assert more("batchmill_tokens_total", "classify.tickets") == more("batchmill_real_units_total", "tiny")
    assert "secret" not in str(after.values)


def test_a_bulk_run_is_counted_by_rows_and_its_end_is_noted(
    measured: WorkerProcess, port: int, app: Celery, client: redis.Redis, tmp_path: Path
) -> None:
    del measured
    before = Scrape(port)
    (tmp_path / "in.csv").write_text('text\nmy card\nmy account\nmy card\n""\n', encoding="utf-8")
    asked = {"inputs": [str(tmp_path / "in.csv")], "output": str(tmp_path / "out"), "text": "text"}
    app.send_task("bulk.classify", kwargs=asked, queue="bulk").get(timeout=WAIT_S)
    after = wait_for(port, lambda seen: seen["batchmill_jobs_total", "succeeded", "bulk.shard"] > 0)
    assert after["batchmill_bulk_rows_total", "ok"] - before["batchmill_bulk_rows_total", "ok"] == 3
    assert after["batchmill_bulk_rows_total", "rejected"] - before["batchmill_bulk_rows_total", "rejected"] == 1
    assert after["batchmill_tokens_total", "bulk.shard"] > 0
    finished_s = client.zscore(keys.BULK_DONE, TASK_BULK_CLASSIFY)
    assert finished_s is not None
    assert finished_s == pytest.approx((tmp_path / "out" / "_SUCCESS").stat().st_mtime, abs=5)


def test_the_rate_that_was_measured_is_shared(
    measured: WorkerProcess, port: int, app: Celery, client: redis.Redis
) -> None:
    del measured, port
    client.delete(keys.SERVICE_RATES, keys.UNIT_RATES, keys.MESSAGE_SIZES)
    send(app, "endless").get(timeout=WAIT_S)
    wait_until(lambda: client.hexists(keys.SERVICE_RATES, "classify"), what="it is written")
    assert 0 < float(client.hget(keys.SERVICE_RATES, "classify") or 0) < 20


def test_everything_of_the_workers_side_is_published_and_nothing_else(
    measured: WorkerProcess, port: int, app: Celery
) -> None:
    del measured
    send(app, "my card").get(timeout=WAIT_S)
    scrape = wait_for(port, lambda seen: any(name == "batchmill_labels_total" for name, *_ in seen.values))
    of_tokens = {task for name, *labels in scrape.values if name == "batchmill_tokens_total" for task in labels}
    assert of_tokens == {"classify.tickets", "bulk.shard"}
    ours = {metric.name: metric.kind for metric in CATALOGUE if metric.side is Side.WORKER}
    ours.pop(PIXELS.name)  # it reads no documents
    assert scrape.ours() == ours
    assert scrape["batchmill_ready",] == 1
    assert scrape["batchmill_runners",] == 1
    assert scrape["batchmill_lease_renewals_total", "renewed"] > 0
    assert scrape["process_cpu_seconds_total",] > 0


def test_a_batch_is_counted_by_its_items(measured: WorkerProcess, port: int, app: Celery) -> None:
    del measured
    before = Scrape(port)
    send(app, *(f"card {word}" for word in ("a", "b", "c", "d"))).get(timeout=WAIT_S)
    after = wait_for(
        port, lambda seen: seen["batchmill_batch_items_sum", "tiny"] == before["batchmill_batch_items_sum", "tiny"] + 4
    )
    for stage in ("prepare", "batch_wait", "inference"):
        assert after["batchmill_stage_seconds_count", stage] > before["batchmill_stage_seconds_count", stage]
