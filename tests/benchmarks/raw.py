"""The yardstick: ONNX Runtime without any queue, in a process of its own that measures its own CPU time.

`windows` is the best that a batching worker can do: tokenise a window of tickets, plan it, run the batches
on as many threads as the worker has. `single` is one ticket at a time, each one's own time: what latency is
compared with. `full` is one batch at the token budget, on every thread at once: what whoever comes while a
worker is busy may have to wait for. Start-up and a warm-up over the first tickets are not counted. Reads a
request on standard input, prints a result.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.peers.plain_model import PlainModel
from worker.planner import BatchPolicy, plan_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POLICY = BatchPolicy()
WARM_UP = 64
FULL_ROWS = 16

Json = dict[str, Any]  # what json.loads makes


def windows(model: PlainModel, texts: Sequence[str], threads: int) -> Json:
    """Classify all texts in planned windows; tokens and labels in the order of `texts`."""
    labels: list[object] = []
    real = padded = 0
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(texts), POLICY.planning_window):
            rows = model.encode(texts[start : start + POLICY.planning_window])
            lengths = [len(row) for row in rows]
            plan = plan_batches(lengths, POLICY.max_batch_size, POLICY.max_batch_tokens, POLICY.call_cost_tokens)
            outcomes = list(pool.map(lambda batch, rows=rows: model.run([rows[i] for i in batch]), plan))
            by_row = {
                i: o["label"] for b, found in zip(plan, outcomes, strict=True) for i, o in zip(b, found, strict=True)
            }
            labels += [by_row[index] for index in range(len(rows))]
            real += sum(lengths)
            padded += sum(len(batch) * max(lengths[i] for i in batch) for batch in plan)
    return {"labels": labels, "real_tokens": real, "padded_tokens": padded}


def single(model: PlainModel, texts: Sequence[str], _threads: int) -> Json:
    """Classify the texts one by one; seconds of each."""
    times_s = []
    for text in texts:
        begin = time.perf_counter()
        model.classify([text])
        times_s.append(time.perf_counter() - begin)
    return {"latencies_s": times_s}


def full(model: PlainModel, texts: Sequence[str], threads: int) -> Json:
    """Run batches of `max_batch_tokens`, in rows of equal length, from the tokens of the texts; seconds of each."""
    tokens = [token for row in model.encode(texts) for token in row]
    length = POLICY.max_batch_tokens // FULL_ROWS
    rows = [tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]
    batches = [rows[start : start + FULL_ROWS] for start in range(0, len(rows) - FULL_ROWS + 1, FULL_ROWS)]

    def timed(batch: Sequence[Sequence[int]]) -> float:
        begin = time.perf_counter()
        model.run(batch)
        return time.perf_counter() - begin

    with ThreadPoolExecutor(threads) as pool:
        return {"latencies_s": list(pool.map(timed, batches))}


MODES: dict[str, Callable[[PlainModel, Sequence[str], int], Json]] = {
    "windows": windows,
    "single": single,
    "full": full,
}


def main() -> None:
    """Run the mode that the request on standard input names."""
    request: Json = json.load(sys.stdin)
    mode, model = MODES[request["mode"]], PlainModel(Path(request["model"]))
    mode(model, request["texts"][:WARM_UP], request["threads"])
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    outcome = mode(model, request["texts"], request["threads"])
    outcome |= {"wall_s": time.perf_counter() - wall_s, "cpu_s": time.process_time() - cpu_s}
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
