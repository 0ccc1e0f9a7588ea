"""The same tickets in another order and in other messages, and what must not change thereby."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from celery import Celery
    from celery.result import AsyncResult

LARGEST_MESSAGE = 64
SCORE_TOLERANCE = 0.001

Labelled = dict[str, Any]


def messages(texts: Sequence[str], seed: int) -> Iterator[list[dict[str, str]]]:
    """All texts, shuffled; half of the messages are single tickets, the others hold 2 to 64."""
    random = np.random.default_rng(seed)
    left = random.permutation(len(texts)).tolist()
    while left:
        size = 1 if random.random() < 0.5 else int(random.integers(2, LARGEST_MESSAGE + 1))
        yield [{"id": str(index), "text": texts[index]} for index in left[:size]]
        del left[:size]


def through_the_queue(app: Celery, texts: Sequence[str], seed: int) -> dict[int, Labelled]:
    """Send every text, at three priorities, and collect the results by position."""
    sent: list[AsyncResult] = [
        app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify", priority=position % 3 * 3)
        for position, tickets in enumerate(messages(texts, seed))
    ]
    results = [one for task in sent for one in task.get(timeout=300)["results"]]
    assert len(results) == len(texts)
    return {int(one["id"]): one for one in results}


def assert_same(queued: dict[int, Labelled], plain: Sequence[Labelled]) -> None:
    """Same label for each, score within the tolerance, nothing cut."""
    flips = [index for index, expected in enumerate(plain) if queued[index]["label"] != expected["label"]]
    assert flips == []
    assert [queued[index]["score"] for index in range(len(plain))] == pytest.approx(
        [expected["score"] for expected in plain], abs=SCORE_TOLERANCE
    )
    assert not any(one["truncated"] for one in queued.values())
