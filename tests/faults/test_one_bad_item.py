"""One item of a batch goes wrong in every way a model can go wrong and live: that item fails, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.oracle import texts

if TYPE_CHECKING:
    from tests.faults.trial import Trial

CODES = {
    "outofmemory": "out_of_memory",
    "panic": "inference_failed",
    "nan": "model_output_not_finite",
    "raise": "inference_failed",
}


@pytest.mark.fault("bad-items")
def test_a_bad_item_fails_alone(trial: Trial) -> None:
    """celery#10462: a MemoryError under acks_late ends or jams the worker."""
    bad = [texts(1, word, seed=2)[0] for word in CODES]
    good = texts(60)
    trial.books.send(
        [*texts(1, "sleep1000", seed=1), *good[:20], bad[0], bad[1], *good[20:40], bad[2], bad[3], *good[40:]]
    )
    trial.fleet.start("a")

    account = trial.account()
    account.assert_clean()
    errors = {trial.books.texts[task_id].split()[0]: code for task_id, code in account.item_errors().items()}
    assert errors == CODES
    assert any(len(run.job_ids) > 10 for run in trial.journal.read()), "they did run in batches"
