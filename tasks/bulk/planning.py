"""What a bulk run is to do, decided once: which files, in which order, cut into which shards, under which identity.

Two identities, both the SHA-256 of canonical JSON:
- the *fingerprint* is the work: inputs by ETag, model by hash, and the settings that show in the bytes. Whoever plans
  the same work anywhere gets the same one, so a rerun finds what is done, and another run is told from this one;
- the *plan key* is the fingerprint and what a plan pinned beside it: the cut into shards and, of rows, batch limits.
  Both follow from a measured speed and may come out otherwise the next time. Parts and messages carry it.

Pure decisions: it reads no files, and does not know where a plan is stored.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from schemas.bulk_plan import Shard
from schemas.errors import ErrorCode, MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import JsonValue

    from schemas.bulk_manifest import BulkManifest
    from schemas.bulk_plan import BulkPlan, BulkRequest, InputFile, PlannedModel

SHARD_MAX_S: Final = 60.0

_FORM: Final = 1  # a change of how identities are made must not meet parts of the old way

# Of the request: where things are, how the rows are cut, and what is judged after the bytes are made.
_NOT_IN_THE_BYTES: Final = frozenset(
    {"inputs", "output", "model", "shard_rows", "max_rejection_rate", "strict", "since_manifest", "schema_version"}
)


@dataclass(frozen=True, slots=True)
class ShardPolicy:
    """How large a shard may be.

    Attributes:
        rows_per_s: what one worker does, measured or estimated.
        max_s: the most work in a shard, in seconds of one worker.
        min_rows: a shard may have this many rows even if that takes longer.
        max_rows: a shard never has more.
    """

    rows_per_s: float
    max_s: float = SHARD_MAX_S
    min_rows: int = 64
    max_rows: int = 262_144

    @property
    def shard_rows(self) -> int:
        """The most rows of a shard: a power of two within the bounds, so that nearly equal speeds cut alike."""
        rows = self.rows_per_s * self.max_s
        power = 2 ** math.floor(math.log2(rows)) if rows >= 1 else 1
        return max(1, min(max(power, self.min_rows), self.max_rows))

    def capped(self, rows: int | None) -> ShardPolicy:
        """The policy under a request's own limit; null is no limit, and `max_s` holds all the same."""
        if rows is None:
            return self
        return replace(self, min_rows=min(self.min_rows, rows), max_rows=min(self.max_rows, rows))


def arrange(files: Iterable[InputFile]) -> list[InputFile]:
    """Files in the order in which their rows come out, each once: by partition folder, then by address.

    The order of the parts' names in a listing is then the order of the manifest, too.

    Raises:
        MessageError: `input_changed`, a file is there twice and the two differ.
    """
    by_uri: dict[str, InputFile] = {}
    for file in files:
        if by_uri.setdefault(file.uri, file) != file:
            raise MessageError(ErrorCode.INPUT_CHANGED, f"{file.uri}: it was replaced while the run was planned")
    return sorted(by_uri.values(), key=lambda file: (f"{file.folder}/part-" if file.folder else "part-", file.uri))


def split_covered(files: Iterable[InputFile], earlier: BulkManifest | None) -> tuple[list[InputFile], list[InputFile]]:
    """Files to label, and files that an earlier run covers: labelled or itself carried over, at the same ETag.

    A copy under another address is another file, because its rows belong into the result, too.
    """
    covered = set() if earlier is None else {(file.uri, file.etag) for file in (*earlier.inputs, *earlier.carried)}
    fresh: list[InputFile] = []
    carried: list[InputFile] = []
    for file in files:
        (carried if (file.uri, file.etag) in covered else fresh).append(file)
    return fresh, carried


def fingerprint(files: Iterable[InputFile], model: PlannedModel, request: BulkRequest) -> str:
    """The identity of the work, 64 hex digits.

    The order of the files does not matter, nor does how the request spells them: addresses, sizes and ETags
    count. So do the model's name, version, hash and precision, and every field of the request that shows in the bytes.
    """
    identities: list[JsonValue] = [[file.uri, file.etag, file.size_bytes, file.folder] for file in files]
    return _digest(
        {
            "form": _FORM,
            "inputs": sorted(identities, key=_canonical),
            "model": model.model_dump(mode="json"),
            "settings": request.model_dump(mode="json", exclude=set(_NOT_IN_THE_BYTES)),
        }
    )


def plan_key(plan: BulkPlan) -> str:
    """The identity of the plan, 64 hex digits: its fingerprint, batch limits and shards; not who made it, nor when."""
    return _digest(
        {
            "form": _FORM,
            "fingerprint": plan.fingerprint,
            "limits": None if plan.limits is None else plan.limits.model_dump(mode="json"),
            "shards": [[shard.file, shard.start, shard.stop] for shard in plan.shards],
        }
    )


def cut(files: Sequence[InputFile], row_groups: Sequence[Sequence[int]], policy: ShardPolicy) -> list[Shard]:
    """Cut files into shards, so that each row is in exactly one, in order.

    A file is cut into pieces of about the same size; a cut moves to a row group's end where one lies within a quarter
    of a shard. A file without rows has no shard, but if no file has rows the first gets an empty one, so that the
    result has its columns.

    Args:
        files: in the order of the plan.
        row_groups: of each file the rows of its row groups; empty where the format has none.
        policy: how large a shard may be.

    Raises:
        ValueError: a file's row groups do not add up to its rows.
    """
    shards = [
        Shard(file=index, start=start, stop=stop)
        for index, (file, groups) in enumerate(zip(files, row_groups, strict=True))
        for start, stop in _ranges(file.rows, _ends(file, groups), policy.shard_rows)
    ]
    return shards or [Shard(file=0, start=0, stop=0)][: len(files)]


def cut_sizes(sizes: Sequence[int], most_rows: int, most_bytes: float) -> list[Shard]:
    """Cut the documents of a list into shards, in order: each has so many documents or bytes at most, but at least one.

    Args:
        sizes: of the documents, in bytes.
        most_rows: documents of a shard.
        most_bytes: of a shard's documents together; one larger document is a shard of its own.
    """
    shards: list[Shard] = []
    start, held_bytes = 0, 0
    for row, size_bytes in enumerate(sizes):
        if row > start and (row - start == most_rows or held_bytes + size_bytes > most_bytes):
            shards.append(Shard(file=0, start=start, stop=row))
            start, held_bytes = row, 0
        held_bytes += size_bytes
    return [*shards, Shard(file=0, start=start, stop=len(sizes))] if sizes else []


def _ends(file: InputFile, groups: Sequence[int]) -> list[int]:
    ends = list(accumulate(groups))
    if ends and ends[-1] != file.rows:
        raise ValueError(f"{file.uri}: its row groups have {ends[-1]} rows, the file has {file.rows}")
    return ends


def _ranges(rows: int, ends: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
    start = 0
    while start < rows:
        stop = _stop(start, rows, ends, most)
        yield start, stop
        start = stop


def _stop(start: int, rows: int, ends: Sequence[int], most: int) -> int:
    """Where the piece from `start` ends: the row group's end next to an equal share of what is left, or that share."""
    pieces = math.ceil((rows - start) / most)
    if pieces == 1:
        return rows
    ideal = start + math.ceil((rows - start) / pieces)
    after = bisect_left(ends, ideal)
    near = [
        end
        for end in ends[max(after - 1, 0) : after + 1]
        if abs(end - ideal) <= most // 4 and start < end <= start + most
    ]
    return min(near, key=lambda end: abs(end - ideal), default=ideal)


def _canonical(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _digest(value: JsonValue) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()
