"""A ticket that comes while a bulk run has the worker is answered after at most three of its batches."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.services import wait_until
from tests.tiny_models import WORDS, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from celery import Celery

    from tests.services import WorkerProcess

PLAIN = [word for word in WORDS if word not in {"nan", "endless"}]
ROWS = 30_000
SINGLES = 40
BATCHES = 3.0


@pytest.mark.slow
def test_interactive_tickets_wait_for_three_batches_at_most_while_a_bulk_run_goes_on(
    app: Celery, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path / "slow", width=256, layers=4)
    start_worker(model, runners=1, queues="classify,bulk")
    texts = [
        " ".join(PLAIN[(row * place + place) % len(PLAIN)] for place in range(30)) + f" {row}" for row in range(ROWS)
    ]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")
    request = {"inputs": [str(tmp_path / "in.parquet")], "output": str(tmp_path / "out"), "text": "text"}
    app.send_task("bulk.classify", kwargs=request, queue="bulk").get(timeout=60)
    wait_until(lambda: batches(app) > 20, what="the run is under way")

    waits_s = []
    for number in range(SINGLES):
        single = {"tickets": [{"id": "single", "text": f"where is my parcel {number}"}]}
        timings = app.send_task("classify.tickets", kwargs=single, queue="classify").get(timeout=60)["timings"]
        assert timings["batches"] == 1
        waits_s.append(timings["queue_wait_s"] + timings["inference_s"])
    engine = stats(app)
    batch_s = engine["busy_s"] / engine["batches"]

    assert not (tmp_path / "out" / "_SUCCESS").exists(), "the run was over too soon to say anything"
    # The 99th percentile is for `make bench`: a test has neighbours on its machine.
    assert median(waits_s) <= BATCHES * batch_s


def stats(app: Celery) -> dict[str, float]:
    """What the one worker's engine has done."""
    replies = app.control.inspect(timeout=20, limit=1).stats()
    assert replies is not None
    (found,) = replies.values()
    engine: dict[str, float] = found["pool"]["engine"]
    return engine


def batches(app: Celery) -> float:
    return stats(app)["batches"]
