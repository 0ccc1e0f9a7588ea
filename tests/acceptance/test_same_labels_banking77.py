"""No label of banking77's 3,080 test tickets depends on how they travel through the queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.peers.plain_model import PlainModel
from tests.shuffled import Labelled, assert_same, through_the_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

    from tests.services import WorkerProcess

SHARED = Path(__file__).parents[3] / "shared" / "data"
BANKING77_MODEL = SHARED / "models" / "banking77-minilm-l6"
BANKING77_TICKETS = SHARED / "tickets" / "banking77_en.parquet"


@pytest.fixture(scope="module")
def banking77() -> list[str]:
    """The test tickets of banking77."""
    parquet = pytest.importorskip("pyarrow.parquet")
    if not (BANKING77_TICKETS.exists() and BANKING77_MODEL.exists()):
        pytest.skip("needs banking77's tickets and model beside the repository")
    rows = parquet.read_table(BANKING77_TICKETS).to_pylist()
    return [row["text"] for row in rows if row["split"] == "test"]


@pytest.fixture(scope="module")
def banking77_plain(banking77: list[str]) -> list[Labelled]:
    plain = PlainModel(BANKING77_MODEL)
    return [plain.classify([text])[0] for text in banking77]


@pytest.fixture(scope="module")
def banking77_worker(banking77: list[str], start_worker: Callable[..., WorkerProcess]) -> Iterator[WorkerProcess]:
    assert len(banking77) == 3_080
    worker = start_worker(BANKING77_MODEL, runners=2)
    yield worker
    worker.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("banking77_worker")
@pytest.mark.parametrize("seed", range(3))
def test_no_label_of_3080_tickets_flips_in_any_order(
    app: Celery, banking77: list[str], banking77_plain: list[Labelled], seed: int
) -> None:
    assert_same(through_the_queue(app, banking77, seed), banking77_plain)
