"""A ticket that comes while a message of ten thousand runs is answered after at most one more of its batches."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.services import wait_until
from tests.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from celery import Celery

    from tests.services import WorkerProcess

SINGLES, SINGLES_AT_LEAST = 12, 4  # as many as fit into the time that the message takes
BATCHES_MEANWHILE = 3  # the one that runs, its own, and one in which the messages travel


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose batches take long beside the way of a message."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "slow", width=256, layers=4)


def batches_so_far(app: Celery) -> int:
    """Batches that the one worker has run."""
    replies = app.control.inspect(timeout=20, limit=1).stats()
    assert replies is not None
    (stats,) = replies.values()
    return int(stats["pool"]["engine"]["batches"])


@pytest.mark.slow
def test_one_ticket_waits_at_most_one_batch_behind_ten_thousand(
    app: Celery, start_worker: Callable[..., WorkerProcess], slow_model: Path
) -> None:
    start_worker(slow_model, runners=1)
    words = ("my card is broken please help", "the invoice for my account is not in the parcel and i was late")
    tickets = [{"id": str(index), "text": words[index % 2] + f" {index}"} for index in range(10_000)]
    big = app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify")
    wait_until(lambda: batches_so_far(app) > 2)

    meanwhile, waits_s = [], []
    while not big.ready() and len(meanwhile) < SINGLES:
        before = batches_so_far(app)
        single = {"tickets": [{"id": "single", "text": f"where is my parcel {len(meanwhile)}"}]}
        timings = app.send_task("classify.tickets", kwargs=single, queue="classify").get(timeout=60)["timings"]
        meanwhile.append(batches_so_far(app) - before)
        waits_s.append(timings["queue_wait_s"])
        assert timings["batches"] == 1
    assert len(meanwhile) >= SINGLES_AT_LEAST

    result = big.get(timeout=150)
    batch_s = result["timings"]["inference_s"] / result["timings"]["batches"]
    assert [one["id"] for one in result["results"]] == [ticket["id"] for ticket in tickets]
    assert all(one["label"] for one in result["results"])
    assert median(meanwhile) <= BATCHES_MEANWHILE
    assert median(waits_s) <= 2 * batch_s
