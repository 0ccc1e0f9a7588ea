"""The peer for whole files: Ray Data with an actor a core, each with a session; Parquet in, labelled Parquet out.

As its users write it: batches of 256 rows come to an actor, which sorts them by length and runs groups of at most 512
padded tokens, so that what is compared is not the padding. Run as `ray_data.py MODEL DIRECTORY ACTORS`: it reads
`DIRECTORY/tickets.parquet` and writes below `DIRECTORY/out`; each actor says in a file `DIRECTORY/ready-PID` that its
model is loaded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import ray
import ray.data
from plain_model import PlainModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 256
GROUP_TOKENS = 512

Columns = dict[str, "NDArray[np.object_]"]


class Labeller:
    """What an actor holds."""

    def __init__(self, model: str, directory: str) -> None:
        self._model = PlainModel(Path(model))
        (Path(directory) / f"ready-{os.getpid()}").touch()

    def __call__(self, batch: Columns) -> Columns:
        """Add the label and the score of each row."""
        rows = self._model.encode(list(batch["text"]))
        outcomes: list[dict[str, object]] = [{}] * len(rows)
        for group in _groups([len(row) for row in rows]):
            for index, outcome in zip(group, self._model.run([rows[index] for index in group]), strict=True):
                outcomes[index] = outcome
        found = {name: np.array([outcome[name] for outcome in outcomes]) for name in ("label", "score")}
        return {**batch, **found}


def _groups(lengths: list[int]) -> list[list[int]]:
    """Rows of like length."""
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not found or (len(found[-1]) + 1) * lengths[index] > GROUP_TOKENS:
            found.append([])
        found[-1].append(index)
    return found


def main() -> None:
    """Label the file."""
    model, directory, actors = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    ray.init(num_cpus=actors, include_dashboard=False, log_to_driver=False)
    tickets = ray.data.read_parquet(str(directory / "tickets.parquet")).repartition(target_num_rows_per_block=ROWS)
    pool = ray.data.ActorPoolStrategy(size=actors)
    labelled = tickets.map_batches(
        Labeller,
        fn_constructor_args=(model, str(directory)),
        batch_size=ROWS,
        compute=pool,
        num_cpus=0.5,  # what is left reads and writes
        zero_copy_batch=True,
    )
    labelled.write_parquet(str(directory / "out"))
    ray.shutdown()


if __name__ == "__main__":
    main()
