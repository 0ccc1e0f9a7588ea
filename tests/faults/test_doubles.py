"""Messages come more than once: each job still has one end, and runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.names import QUEUE_CLASSIFY
from tests.faults.oracle import texts

if TYPE_CHECKING:
    from tests.faults.trial import Trial


@pytest.mark.fault("doubled-messages")
def test_a_message_that_comes_again_before_during_and_after_runs_once(trial: Trial) -> None:
    ids = trial.books.send(texts(trial.pick(short=100, full=1000), "sleep20"))
    with trial.server.client() as client:
        copies = client.lrange(QUEUE_CLASSIFY, 0, -1)
        client.lpush(QUEUE_CLASSIFY, *copies)  # the same bytes
        assert all(trial.books.push(task_id) for task_id in ids)  # the same id in another message
        trial.fleet.start("a", "b", max_batch_size=8)
        client.lpush(QUEUE_CLASSIFY, *copies)
        trial.books.wait_ended(60)
        client.lpush(QUEUE_CLASSIFY, *copies)
        assert all(trial.books.push(task_id) for task_id in ids)

    trial.account().assert_clean()
    assert set(map(trial.runs().get, ids)) == {1}


@pytest.mark.fault("doubled-messages-without-result")
def test_a_job_without_a_result_runs_once_too(trial: Trial) -> None:
    trial.fleet.start("a", "b", max_batch_size=8)
    ids = trial.books.send(texts(30, "sleep20"), ignore_result=True)
    for _ in range(2):
        assert all(trial.books.push(task_id, ignore_result=True) for task_id in ids)

    last = trial.books.send(texts(1, seed=1))
    trial.books.wait_ended(30, last)
    for task_id in ids:
        del trial.books.texts[task_id]  # nobody asked for a result
    trial.account().assert_clean()
    trial.figures.jobs += len(ids)
    assert set(map(trial.runs().get, ids)) == {1}
