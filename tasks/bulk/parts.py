"""What a run's parts are called, and which of them are still missing.

    OUTPUT/dt=2026-01-01/part-000003-1f0c9a52-b7d2e4f1.parquet

is the part of shard 3, of the fingerprint 1f0c9a52… and the plan key b7d2e4f1…: a part of other work, or of another
cut of the same rows, has another name and is never taken for it. The names of one run sort in the order of its rows.
A name is a decision of the plan alone, so that every worker that runs the shard writes the same one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tasks.bulk.planning import plan_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.bulk_plan import BulkPlan

_SHARD_DIGITS: Final = 6
_KEY_DIGITS: Final = 8

_PARTITION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^/]*")


def partition_folder(uri: str, output: str) -> str:
    """The Hive partition folders of a file that its parts keep, such as `dt=2026-01-01/hour=7`; empty if none.

    Those that the output itself names are left out, so that `…/dt=2026-01-01/` read into `…/dt=2026-01-01/` has the
    folder once.
    """
    named = set(output.split("/"))
    folders = (folder for folder in uri.split("/")[:-1] if _PARTITION.fullmatch(folder))
    return "/".join(folder for folder in folders if folder not in named)


def part_names(plan: BulkPlan) -> list[str]:
    """The name of each shard's part, below the output; they are in the order of the shards, and sort so."""
    suffix = f"{plan.fingerprint[:_KEY_DIGITS]}-{plan_key(plan)[:_KEY_DIGITS]}.parquet"
    digits = max(_SHARD_DIGITS, len(str(len(plan.shards) - 1)))
    return [
        _below(plan.inputs[shard.file].folder, f"part-{index:0{digits}d}-{suffix}")
        for index, shard in enumerate(plan.shards)
    ]


def missing_shards(plan: BulkPlan, existing: Iterable[str]) -> list[int]:
    """The shards whose part is not among `existing`, the names below the output; other names are ignored."""
    found = frozenset(existing)
    return [index for index, name in enumerate(part_names(plan)) if name not in found]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
