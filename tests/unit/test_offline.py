"""Tickets are classified in one process without a broker: in order, lazily, and as one by one."""

from __future__ import annotations

import threading
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import MessageError
from schemas.results import TicketResult
from tasks.offline import JOBS_IN_FLIGHT, TICKETS_PER_JOB, classify_offline
from tests.services import wait_until
from tests.tiny_models import WORDS
from worker.errors import ConfigError
from worker.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = [word for word in WORDS if word not in {"nan", "endless"}]


@pytest.fixture
def settings(tiny_model: Path) -> Settings:
    return load(model=str(tiny_model), runners=2)


def tickets(number: int) -> Iterator[dict[str, object]]:
    """Tickets of 1 to 40 words."""
    for index in range(number):
        words = [PLAIN[(index * 7 + position * position) % len(PLAIN)] for position in range(1 + index * 13 % 40)]
        yield {"id": str(index), "text": " ".join(words)}


def test_a_thousand_tickets_come_back_in_order_and_as_one_by_one(settings: Settings) -> None:
    one_by_one = settings.model_copy(update={"max_batch_size": 1, "runners": 1})

    batched = list(classify_offline(settings, tickets(1_000)))
    alone = list(classify_offline(one_by_one, tickets(1_000)))

    assert [one["id"] for one in batched] == [str(index) for index in range(1_000)]
    assert [one["label"] for one in batched] == [one["label"] for one in alone]
    assert [one["score"] for one in batched] == pytest.approx([one["score"] for one in alone], abs=0.001)
    assert len({one["label"] for one in batched}) > 1


def test_every_result_is_what_the_contract_describes(settings: Settings) -> None:
    bad: list[dict[str, Any]] = [{"id": "null", "text": None}, {"id": "nan", "text": "nan"}]

    results = [TicketResult.model_validate(one) for one in classify_offline(settings, [*tickets(3), *bad], top_k=3)]

    assert [one.error.code if one.error else None for one in results] == [
        None,
        None,
        None,
        "null_text",
        "model_output_not_finite",
    ]
    assert all(one.scores is not None and len(one.scores) == 3 for one in results[:3])


def test_no_ticket_is_no_result(settings: Settings) -> None:
    assert list(classify_offline(settings, [])) == []


def test_an_endless_stream_is_read_only_so_far_ahead(settings: Settings) -> None:
    read = count()
    stream = ({"id": str(index), "text": "hello"} for index in read)

    results = list(islice(classify_offline(settings, stream), 300))

    assert [one["id"] for one in results] == [str(index) for index in range(300)]
    assert next(read) <= (JOBS_IN_FLIGHT + 1) * TICKETS_PER_JOB + 1


def test_the_same_id_may_come_again_later(settings: Settings) -> None:
    stream = ({"id": str(index % TICKETS_PER_JOB), "text": "hello"} for index in range(2 * TICKETS_PER_JOB))

    assert len(list(classify_offline(settings, stream))) == 2 * TICKETS_PER_JOB


@pytest.mark.parametrize(
    ("ticket", "options"),
    [({"text": "no id"}, {}), ({"id": "1", "text": "x"}, {"top_k": 0}), ({"id": "1", "text": "x"}, {"topk": 1})],
    ids=["no id", "wrong value", "unknown option"],
)
def test_a_wrong_request_is_an_error(settings: Settings, ticket: dict[str, object], options: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        list(classify_offline(settings, [ticket], **options))


def test_a_missing_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        list(classify_offline(load(model="nowhere", models_dir=tmp_path), tickets(1)))


def test_whoever_stops_reading_leaves_no_thread_behind(settings: Settings) -> None:
    results = classify_offline(settings, tickets(2_000))
    next(results)

    results.close()  # type: ignore[attr-defined] # it is a generator

    ours = ("preparer", "runner-", "watchdog")
    wait_until(lambda: not any(thread.name.startswith(ours) for thread in threading.enumerate()))
