"""Runs a graph over many texts: pads rows to a batch, and forms batches of like length.

Why it exists: fitting and validating need the graph's output for thousands of texts in a worker's session. It knows
token ids only, and it is no substitute for the worker's batcher: there is no queue, no deadline, no second thread.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from worker.jobs import Cancellation
from worker.models.session import Session

BATCH_TOKENS: Final = 512

Rows = Sequence[NDArray[np.int64]]
Run = Callable[[Rows], NDArray[np.float32]]


def runner(model: ModelProto, threads: int = 1) -> Run:
    """Load a graph made here into a session and return what runs it.

    Args:
        model: inputs `input_ids` and `attention_mask`, one output.
        threads: intra-op threads.

    Returns:
        A function from the ids of a batch, each `int64[tokens]`, to `float32[batch, width]`. It blocks.
    """
    with TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        session = Session(path, ["CPUExecutionProvider"], threads)
    return lambda rows: session.run(padded(rows), Cancellation())


def padded(rows: Rows) -> dict[str, NDArray[np.int64]]:
    """Return the feeds of one batch: ids and mask, each `int64[batch, longest]`, filled up with 0."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def run_by_length(run: Run, rows: Rows) -> NDArray[np.float32]:
    """Run all rows in batches of like length and return `float32[rows, width]` in the rows' order."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    outputs = np.concatenate([run([rows[index] for index in batch]) for batch in _batches(order, rows)])
    return outputs[np.argsort(order)]


def _batches(order: Sequence[int], rows: Rows) -> Iterator[list[int]]:
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * len(rows[index]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    yield batch
