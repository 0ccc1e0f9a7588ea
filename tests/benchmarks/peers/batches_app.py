"""The peer that batches: celery-batches, 32 at a time or every 50 ms, results stored as it documents.

As its users write it, the task pads whatever was flushed to the longest of it. With BENCH_SORTED=1 it does
what a careful user would: sorts the flush by length and runs groups of at most 512 padded tokens. The
prefetch count is two batches: with less than one the batches never fill.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from celery import Celery
from celery.signals import worker_process_init
from celery_batches import Batches, SimpleRequest
from plain_model import PlainModel

if TYPE_CHECKING:
    from collections.abc import Sequence

app = Celery("peer", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BROKER"])
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_prefetch_multiplier = 64
GROUP_TOKENS = 512
loaded: dict[str, PlainModel] = {}


@worker_process_init.connect
def load(**_: object) -> None:
    """Load the model once in each process that runs tasks."""
    loaded["model"] = PlainModel(Path(os.environ["BENCH_MODEL"]))


@app.task(name="peer.classify", base=Batches, flush_every=32, flush_interval=0.05)
def classify(requests: Sequence[SimpleRequest]) -> None:
    """Classify the buffered tickets and store each one's result."""
    model = loaded["model"]
    rows = model.encode([request.kwargs["text"] for request in requests])
    for group in groups([len(row) for row in rows]):
        for index, outcome in zip(group, model.run([rows[index] for index in group]), strict=True):
            request = requests[index]
            app.backend.mark_as_done(request.id, outcome, request=request)


def groups(lengths: Sequence[int]) -> list[list[int]]:
    """Which rows run together: all of them, or those of like length."""
    if os.environ.get("BENCH_SORTED") != "1":
        return [list(range(len(lengths)))]
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not found or (len(found[-1]) + 1) * lengths[index] > GROUP_TOKENS:
            found.append([])
        found[-1].append(index)
    return found
