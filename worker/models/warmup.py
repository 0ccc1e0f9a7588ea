"""Warms a model over the shapes that it will meet, and measures what one call of it costs.

The first run of a shape pays for memory that later runs reuse, and a limit that the graph cannot keep (a
maximum length beyond its position table) must show before the first message is taken. The planner weighs
padding against calls, so it needs the cost of a call in padded tokens, which differs between machines: about
16 on a CPU, more on a GPU. This module knows a model only as something that runs rows of a given length.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final

import numpy as np

from worker.errors import ItemFailed, ModelError
from worker.jobs import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.jobs import Model

CALL_COST_TOKENS_DEFAULT: Final = 16.0
CALL_COST_TOKENS_MAX: Final = 256.0

_SHORT: Final = 8
# Where the planner's choices lie: few rows, short rows. Long rows would blend in attention's square.
_MEASURED: Final = ((1, 8), (1, 16), (1, 32), (2, 16), (4, 8), (4, 16), (8, 16), (8, 32))
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the model costs on this machine.

    Attributes:
        call_cost_tokens: fixed cost of one call, in padded tokens (0 to 256).
        tokens_per_s: padded tokens that one undisturbed runner computes in a second, without the fixed cost.
        runs: calls that were made.
        wall_s: how long all of it took.
    """

    call_cost_tokens: float
    tokens_per_s: float
    runs: int
    wall_s: float


def warm_up(
    model: Model, max_batch_size: int, max_batch_tokens: int, clock: Callable[[], float] | None = None
) -> Calibration:
    """Run the corners of the shapes that the batcher can emit, then time small ones.

    Blocks, for half a second with MiniLM on a CPU.

    Args:
        model: loaded, not yet in use.
        max_batch_size: rows a batch may have.
        max_batch_tokens: rows times longest row a batch may have; a longer row runs alone.
        clock: seconds; by default this thread's CPU time where the model computes on it, so that a busy
            machine does not disturb the measurement, else the wall's.

    Raises:
        ModelError: the model fails, or answers with NaN or infinity, on one of them.
    """
    start_s = perf_counter()
    if clock is None:
        clock = thread_time if model.info["provider"] == "CPUExecutionProvider" else perf_counter
    corners = _corners(model.max_length, max_batch_size, max_batch_tokens)
    for rows, length in corners:
        _time_run(model, rows, length, clock)
    measured = [
        (rows, length)
        for rows, length in _MEASURED
        if rows <= max_batch_size and length <= model.max_length and rows * length <= max_batch_tokens
    ] or [(1, 1)]
    rounds_s = [[_time_run(model, rows, length, clock) for rows, length in measured] for _ in range(_ROUNDS)]
    fastest_s = [min(durations_s) for durations_s in zip(*rounds_s, strict=True)]
    call_cost_tokens, tokens_per_s = fit([rows * length for rows, length in measured], fastest_s)
    runs = len(corners) + _ROUNDS * len(measured)
    return Calibration(call_cost_tokens, tokens_per_s, runs, perf_counter() - start_s)


def fit(padded_tokens: Sequence[int], durations_s: Sequence[float]) -> tuple[float, float]:
    """Fit `duration = call + tokens / rate` by least squares over the relative errors.

    Returns:
        `call` as a number of tokens, clamped to 0 … 256, and `rate` in tokens per second. Where no line can be
        drawn, because there is one point or time falls with the tokens, `call` is the usual 16.
    """
    tokens = np.array(padded_tokens, np.float64)
    seconds = np.array(durations_s, np.float64)
    terms = np.stack([1 / seconds, tokens / seconds], axis=1)
    (call_s, token_s), *_ = np.linalg.lstsq(terms, np.ones(len(tokens)))
    if len(set(padded_tokens)) < 2 or token_s <= 0:  # noqa: PLR2004 - a line takes two points
        return CALL_COST_TOKENS_DEFAULT, float((tokens / seconds).mean())
    return float(np.clip(call_s / token_s, 0.0, CALL_COST_TOKENS_MAX)), float(1 / token_s)


def _corners(max_length: int, max_batch_size: int, max_batch_tokens: int) -> list[tuple[int, int]]:
    """List (rows, length), largest first, so that the memory arena grows once."""
    shapes = {(1, 1), (1, max_length)}
    length = min(_SHORT, max_length)
    while length <= max_length:
        shapes.add((max(1, min(max_batch_size, max_batch_tokens // length)), length))
        length *= 4
    return sorted(shapes, key=lambda shape: shape[0] * shape[1], reverse=True)


def _time_run(model: Model, rows: int, length: int, clock: Callable[[], float]) -> float:
    features = model.sample(rows, length)
    start_s = clock()
    try:
        outputs = model.run(features, Cancellation())
    except (ItemFailed, MemoryError) as error:
        raise ModelError(_text(model, rows, length, str(error.__cause__ or error))) from error
    duration_s = clock() - start_s
    for output in outputs:
        if isinstance(output, ItemFailed):
            raise ModelError(_text(model, rows, length, output.message)) from output
    return duration_s


def _text(model: Model, rows: int, length: int, fault: str) -> str:
    return (
        f"model {model.name} fails its warm-up with {rows} rows of {length} tokens: {fault}; "
        "if only long rows fail, lower max_length in model.json; if only many rows, lower "
        "BATCHMILL_MAX_BATCH_TOKENS; else export the model again"
    )
