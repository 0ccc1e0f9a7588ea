"""Which rows share a batch: a plan by length, at the least padding.

Batching itself gains little on a CPU, padding costs a lot: a batch is as long as its longest row. So the waiting rows
are sorted by length and cut where Σ(call cost + rows × longest row) is smallest, by dynamic programming. Pure; it knows
no priorities and no time: `worker.batching` decides what waits together and what runs first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.jobs import Item, Job


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The limits of a batch.

    Attributes:
        max_batch_size: rows.
        max_batch_tokens: rows × longest row; a single longer row still runs, alone.
        max_queue_delay_s: how long the oldest item waits for company; 0 = never, load batches by itself.
        planning_window: items that are planned together.
        call_cost_tokens: what one call of the model costs beyond its tokens, in padded tokens.
        ageing_s: how long a band waits without a batch before it counts as one band more urgent.
        equal_lengths: whether all rows of a batch have one length: nothing is padded, so that a row's result cannot
            depend on its neighbours.
    """

    max_batch_size: int = 32
    max_batch_tokens: int = 512
    max_queue_delay_s: float = 0.0
    planning_window: int = 256
    call_cost_tokens: float = 16.0
    ageing_s: float = 5.0
    equal_lengths: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that run in one call; a row holds every item with that same input.

    Attributes:
        rows: the distinct inputs, each with its items.
        length: tokens of the longest row, to which all are padded.
    """

    rows: tuple[tuple[Item, ...], ...]
    length: int

    @property
    def head(self) -> Item:
        """The first item of the first row."""
        return self.rows[0][0]

    @property
    def items(self) -> list[Item]:
        """Every item of every row."""
        return [item for row in self.rows for item in row]

    @property
    def jobs(self) -> list[Job]:
        """The jobs of its items, each once, in the order of the rows."""
        return list(dict.fromkeys(item.job for item in self.items))

    @property
    def is_suspect(self) -> bool:
        """Whether it is of a job that must run with nothing else; such a batch is of one job."""
        return self.head.job.suspect

    @property
    def real_tokens(self) -> int:
        """Σ row length, without what an item padded itself."""
        return sum(row[0].length - row[0].padding for row in self.rows)

    @property
    def padded_tokens(self) -> int:
        """Rows × longest row: what the model computes."""
        return len(self.rows) * self.length


def plan_batches(
    lengths: Sequence[int], max_batch_size: int, max_batch_tokens: int, call_cost_tokens: float
) -> list[list[int]]:
    """Partition rows into batches at the least padded cost.

    Minimises Σ(call_cost_tokens + rows × longest row) over contiguous groups of the length-sorted rows, which is
    optimal for this cost: swapping two rows between batches never shortens both. O(n × max_batch_size).

    Args:
        lengths: tokens of each row.
        max_batch_size: rows a batch may have.
        max_batch_tokens: rows × longest row a batch may have; a row beyond it gets a batch of its own.
        call_cost_tokens: fixed cost of a batch, in padded tokens.

    Returns:
        Indices into `lengths`, one list a batch, shortest rows first.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    best = [0.0]
    sizes = [0]
    for end, index in enumerate(order, start=1):
        longest = max(lengths[index], 1)
        most = max(1, min(max_batch_size, end, max_batch_tokens // longest))
        cost, size = min((best[end - rows] + rows * longest, rows) for rows in range(1, most + 1))
        best.append(cost + call_cost_tokens)
        sizes.append(size)
    batches = []
    end = len(order)
    while end:
        batches.append(order[end - sizes[end] : end])
        end -= sizes[end]
    return batches[::-1]


def plan_equal(lengths: Sequence[int], max_batch_size: int, max_batch_tokens: int) -> list[list[int]]:
    """Partition rows into batches of one length each; arguments and result as those of `plan_batches`."""
    alike: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        alike.setdefault(length, []).append(index)
    return [
        indices[start : start + most]
        for length, indices in sorted(alike.items())
        for most in [max(1, min(max_batch_size, max_batch_tokens // max(length, 1)))]
        for start in range(0, len(indices), most)
    ]


def cut(items: Sequence[Item], policy: BatchPolicy) -> Iterator[Batch]:
    """Plan items into batches of a policy; identical inputs share a row."""
    rows: dict[object, list[Item]] = {}
    for item in items:
        rows.setdefault(item if item.key is None else item.key, []).append(item)
    distinct = [tuple(same) for same in rows.values()]
    lengths = [row[0].length for row in distinct]
    for indices in _planned(lengths, policy):
        yield Batch(tuple(distinct[index] for index in indices), lengths[indices[-1]])


def _planned(lengths: Sequence[int], policy: BatchPolicy) -> list[list[int]]:
    if policy.equal_lengths:
        return plan_equal(lengths, policy.max_batch_size, policy.max_batch_tokens)
    return plan_batches(lengths, policy.max_batch_size, policy.max_batch_tokens, policy.call_cost_tokens)
