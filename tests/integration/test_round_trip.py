"""A stock Celery producer gets a typed result from a real worker over a real Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.results import ClassifyResult

if TYPE_CHECKING:
    from celery import Celery

    from tests.services import WorkerProcess


def test_a_stock_producer_gets_every_ticket_labelled(app: Celery, worker: WorkerProcess) -> None:
    tickets = [{"id": str(n), "text": f"my card {'is broken ' * n}"} for n in range(1, 6)]
    sent = app.send_task("classify.tickets", kwargs={"tickets": tickets}, queue="classify")

    result = ClassifyResult.model_validate(sent.get(timeout=20))

    assert [one.id for one in result.results] == ["1", "2", "3", "4", "5"]
    assert all(one.label is not None and one.error is None for one in result.results)
    assert worker.process.poll() is None
