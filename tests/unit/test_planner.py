"""The planner cuts a window of waiting rows where it costs least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.planner import plan_batches, plan_equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTHS = st.lists(st.integers(0, 600), max_size=60)
CALL_COSTS = st.sampled_from([0.0, 1.0, 16.0, 200.0])


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600), CALL_COSTS)
def test_every_row_is_in_exactly_one_batch(lengths: list[int], size: int, tokens: int, call_cost: float) -> None:
    batches = plan_batches(lengths, size, tokens, call_cost)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600), CALL_COSTS)
def test_a_batch_keeps_both_caps_unless_it_is_one_row(
    lengths: list[int], size: int, tokens: int, call_cost: float
) -> None:
    for batch in plan_batches(lengths, size, tokens, call_cost):
        assert len(batch) <= size
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600), CALL_COSTS)
def test_batches_come_shortest_first(lengths: list[int], size: int, tokens: int, call_cost: float) -> None:
    planned = [lengths[index] for batch in plan_batches(lengths, size, tokens, call_cost) for index in batch]

    assert planned == sorted(lengths)


@given(st.lists(st.integers(0, 30), max_size=7), st.integers(1, 5), st.integers(1, 60), st.integers(0, 40))
def test_no_partition_costs_less(lengths: list[int], size: int, tokens: int, call_cost: int) -> None:
    planned = _cost(plan_batches(lengths, size, tokens, call_cost), lengths, call_cost)

    assert planned == min(
        _cost(batches, lengths, call_cost)
        for batches in _partitions(range(len(lengths)))
        if all(_is_allowed(batch, lengths, size, tokens) for batch in batches)
    )


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600), CALL_COSTS)
def test_planning_is_a_pure_function(lengths: list[int], size: int, tokens: int, call_cost: float) -> None:
    given_lengths = tuple(lengths)

    first = plan_batches(lengths, size, tokens, call_cost)
    second = plan_batches(lengths, size, tokens, call_cost)

    assert first == second
    assert tuple(lengths) == given_lengths


def test_nothing_to_plan_is_no_batch() -> None:
    assert plan_batches([], 32, 512, 16.0) == []


def test_a_row_over_the_token_budget_runs_alone() -> None:
    assert plan_batches([900, 10, 10, 900], 32, 512, 16.0) == [[1, 2], [0], [3]]


@pytest.mark.parametrize(
    ("call_cost", "batches"),
    [
        pytest.param(0.0, [[0], [1]], id="padding costs more than a free call"),
        pytest.param(20.0, [[0, 1]], id="a call costs more than the padding"),
    ],
)
def test_padding_is_weighed_against_calls(call_cost: float, batches: list[list[int]]) -> None:
    assert plan_batches([10, 20], 32, 512, call_cost) == batches


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600))
def test_batches_of_one_length_hold_every_row_once_and_keep_both_caps(
    lengths: list[int], size: int, tokens: int
) -> None:
    batches = plan_equal(lengths, size, tokens)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len({lengths[index] for index in batch}) == 1 for batch in batches)
    assert all(_is_allowed(batch, lengths, size, tokens) for batch in batches if len(batch) > 1)
    fullest = {length: max(1, min(size, tokens // max(1, length))) for length in lengths}
    assert len(batches) == sum(-(-lengths.count(length) // most) for length, most in fullest.items())


@pytest.mark.parametrize("seed", range(8))
def test_a_backlog_of_256_tickets_pads_by_five_percent_at_most(seed: int) -> None:
    lengths = _ticket_lengths(256, seed)

    batches = plan_batches(lengths, 32, 512, 16.0)

    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    assert (padded - sum(lengths)) / sum(lengths) <= 0.05


def _ticket_lengths(tickets: int, seed: int) -> list[int]:
    """Tokens of tickets of 5 to 200 words, median about 35, mean about 50."""
    drawn = np.random.default_rng(seed).lognormal(np.log(35), 0.8, tickets)
    return [int(length) for length in np.clip(drawn, 7, 256)]


def _cost(batches: Sequence[Sequence[int]], lengths: Sequence[int], call_cost: float) -> float:
    return sum(call_cost + len(batch) * max(1, *(lengths[index] for index in batch)) for batch in batches)


def _is_allowed(batch: Sequence[int], lengths: Sequence[int], size: int, tokens: int) -> bool:
    return len(batch) == 1 or (
        len(batch) <= size and len(batch) * max(1, *(lengths[index] for index in batch)) <= tokens
    )


def _partitions(indices: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to cut a set into parts."""
    if not indices:
        yield []
        return
    last = indices[-1]
    for parts in _partitions(indices[:-1]):
        yield [*parts, [last]]
        for position, part in enumerate(parts):
            yield [*parts[:position], [*part, last], *parts[position + 1 :]]
