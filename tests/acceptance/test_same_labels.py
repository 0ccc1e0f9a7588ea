"""Through the queue a ticket gets the label that a plain ONNX Runtime loop gives it, whatever batch it travels in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.benchmarks.peers.plain_model import PlainModel
from tests.shuffled import assert_same, through_the_queue
from tests.tiny_models import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from celery import Celery

    from tests.services import WorkerProcess


@pytest.fixture(scope="module")
def made_up() -> list[str]:
    """Texts of the tiny model's words, log-normal in length."""
    random = np.random.default_rng(0)
    known = [word for word in WORDS if word not in {"nan", "endless"}]
    lengths = np.clip(random.lognormal(np.log(12), 0.8, 1_000), 1, 55).astype(int)
    return [" ".join(random.choice(known, length)) for length in lengths]


@pytest.fixture(scope="module")
def tiny_worker(start_worker: Callable[..., WorkerProcess]) -> Iterator[WorkerProcess]:
    worker = start_worker(runners=2)
    yield worker
    worker.stop()


@pytest.mark.usefixtures("tiny_worker")
@pytest.mark.parametrize("seed", range(3))
def test_the_queue_gives_the_labels_of_a_plain_loop(
    app: Celery, tiny_model: Path, made_up: list[str], seed: int
) -> None:
    plain = PlainModel(tiny_model)

    queued = through_the_queue(app, made_up, seed)

    assert_same(queued, [plain.classify([text])[0] for text in made_up])
