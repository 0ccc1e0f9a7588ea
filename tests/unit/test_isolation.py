"""A failing batch is bisected: the culprit alone fails, and every other row keeps its outcome."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ErrorCode, MessageError
from tests.echo import Panic
from worker.errors import BatchTimeout, Draining, ItemFailed
from worker.isolation import failure, isolate, message_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET = "the ticket's own words"  # noqa: S105 - no password, but what must not leak
INVALID = ItemFailed(ErrorCode.INVALID_UNICODE, "a lone surrogate")


class Squares:
    """Squares numbers; fails, as it is told to, when a culprit is among them."""

    def __init__(self, culprits: set[int], error: BaseException | None = None) -> None:
        self._culprits = culprits
        self._error = error or ValueError(SECRET)
        self.calls: list[list[int]] = []

    def __call__(self, rows: Sequence[int]) -> list[object]:
        self.calls.append(list(rows))
        if self._culprits.intersection(rows):
            raise self._error
        return [row * row for row in rows]


@given(st.integers(0, 40), st.sets(st.integers(0, 39)))
def test_only_culprits_fail_and_every_other_row_keeps_its_outcome_in_place(rows: int, culprits: set[int]) -> None:
    outcomes = isolate(range(rows), Squares(culprits))

    assert len(outcomes) == rows
    for row, outcome in enumerate(outcomes):
        if row in culprits:
            assert isinstance(outcome, ItemFailed)
        else:
            assert outcome == row * row


@pytest.mark.parametrize("culprit", [0, 13, 31])
def test_one_culprit_costs_two_calls_for_each_halving(culprit: int) -> None:
    run = Squares({culprit})

    isolate(range(32), run)

    assert len(run.calls) == 1 + 2 * ceil(log2(32))


def test_a_healthy_batch_runs_once() -> None:
    run = Squares(set())

    isolate(range(32), run)

    assert run.calls == [list(range(32))]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(ValueError(SECRET), ErrorCode.INFERENCE_FAILED, id="exception"),
        pytest.param(MemoryError(SECRET), ErrorCode.OUT_OF_MEMORY, id="memory"),
        pytest.param(Panic(SECRET), ErrorCode.INFERENCE_FAILED, id="rust panic"),
        pytest.param(KeyboardInterrupt(SECRET), ErrorCode.INFERENCE_FAILED, id="interrupt"),
        pytest.param(BatchTimeout(60.0), ErrorCode.INFERENCE_TIMEOUT, id="timeout"),
        pytest.param(INVALID, ErrorCode.INVALID_UNICODE, id="already an outcome"),
    ],
)
def test_the_error_decides_the_code_and_never_quotes_the_input(error: BaseException, code: ErrorCode) -> None:
    first, second, third = isolate([1, 2, 3], Squares({2}, error))

    assert (first, third) == (1, 9)
    assert isinstance(second, ItemFailed)
    assert second.code is code
    assert SECRET not in second.message


@pytest.mark.parametrize("lost", [{4}, {0, 7}, set(range(8))], ids=["one", "the outer two", "all"])
def test_rows_without_an_output_fail_and_the_others_keep_theirs(lost: set[int]) -> None:
    outcomes = isolate(range(8), lambda rows: [row for row in rows if row not in lost])

    failed = {row for row, outcome in enumerate(outcomes) if isinstance(outcome, ItemFailed)}
    assert failed == lost
    assert all(outcomes[row] == row for row in set(range(8)) - lost)


def test_more_outputs_than_rows_are_no_outcome() -> None:
    (outcome,) = isolate([1], lambda rows: [*rows, *rows])

    assert isinstance(outcome, ItemFailed)


def test_an_outcome_that_is_a_failure_is_no_reason_to_run_again() -> None:
    calls = []

    def run(rows: Sequence[int]) -> list[object]:
        calls.append(rows)
        return [INVALID, *rows[1:]]

    assert isolate([1, 2], run) == [INVALID, 2]
    assert len(calls) == 1


def test_a_stopping_worker_makes_no_outcome() -> None:
    with pytest.raises(Draining):
        isolate([1, 2], Squares({1}, Draining("stopping")))


def test_an_unknown_failure_names_its_type_and_place_only() -> None:
    (outcome,) = isolate([1], Squares({1}))

    assert isinstance(outcome, ItemFailed)
    assert outcome.message.startswith("ValueError at test_isolation.py:")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(SECRET), ErrorCode.OUT_OF_MEMORY),
        (Panic(SECRET), ErrorCode.INTERNAL),
        (ValueError(SECRET), ErrorCode.INTERNAL),
    ],
    ids=["memory", "rust panic", "exception"],
)
def test_a_message_that_fails_as_a_whole_has_a_code_and_quotes_nothing(error: BaseException, code: ErrorCode) -> None:
    failed = message_failure(error)

    assert failed.code is code
    assert SECRET not in str(failed)


def test_a_message_that_is_wrong_keeps_its_own_error() -> None:
    wrong = MessageError(ErrorCode.UNKNOWN_FIELD, "tickets[0].txt")

    assert message_failure(wrong) is wrong


def test_an_error_that_was_never_raised_has_an_outcome_too() -> None:
    assert failure(ValueError(SECRET)).code is ErrorCode.INFERENCE_FAILED
