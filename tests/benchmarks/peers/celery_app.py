"""The peer that most people run: a stock Celery task that holds its own session in each process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from celery import Celery
from celery.signals import worker_process_init
from plain_model import PlainModel

if TYPE_CHECKING:
    from collections.abc import Mapping

app = Celery("peer", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BROKER"])
app.conf.broker_connection_retry_on_startup = True
loaded: dict[str, PlainModel] = {}


@worker_process_init.connect
def load(**_: object) -> None:
    """Load the model once in each process that runs tasks."""
    loaded["model"] = PlainModel(Path(os.environ["BENCH_MODEL"]))


@app.task(name="peer.classify")
def classify(text: str) -> Mapping[str, object]:
    """Classify one ticket."""
    return loaded["model"].classify([text])[0]
