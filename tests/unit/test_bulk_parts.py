"""A part's name follows from the plan alone, sorts as its rows, and is never that of other work."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bulk_examples import PLAN
from schemas.bulk_plan import InputFile, Shard
from tasks.bulk.parts import missing_shards, part_names, partition_folder
from tasks.bulk.planning import ShardPolicy, arrange, cut, plan_key

FOLDERS = ("", "dt=2026-01-01", "dt=2026-01-10", "dt=2026-01-01/hour=7", "a=1", "z=%20x")
NAMES = ("export.parquet", "part-0.parquet", "a.parquet", "Ä.parquet")


def file_at(uri: str) -> InputFile:
    return InputFile(uri=f"s3://lake/{uri}", size_bytes=1, etag="e", rows=3, folder=partition_folder(uri, "s3://out"))


uris = st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES)).map("/".join)
inputs = st.lists(uris, min_size=1, max_size=8, unique=True).map(lambda found: [file_at(uri) for uri in found])


@given(inputs, st.integers(1, 3))
def test_the_names_are_unique_and_sort_as_their_rows(files: list[InputFile], most: int) -> None:
    arranged = arrange(files)
    shards = cut(arranged, [[]] * len(arranged), ShardPolicy(1e6).capped(most))
    names = part_names(PLAN.model_copy(update={"inputs": arranged, "shards": shards}))

    assert all(first < second for first, second in pairwise(names))


def test_a_great_many_names_sort_all_the_same() -> None:
    shards = [Shard(file=0, start=row, stop=row + 1) for row in range(10)] * 100_001
    names = part_names(PLAN.model_copy(update={"shards": shards}))

    assert names[-1].startswith("dt=2026-01-01/part-1000009-")
    assert names[1] < names[-1]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"fingerprint": "0" * 64}, id="other work"),
        pytest.param({"shards": [Shard(file=0, start=0, stop=100)]}, id="another cut"),
        pytest.param({"limits": PLAN.limits.model_copy(update={"call_cost_tokens": 9.0})}, id="other batches"),
    ],
)
def test_another_plan_has_other_names(change: dict[str, object]) -> None:
    assert not set(part_names(PLAN.model_copy(update=change))) & set(part_names(PLAN))


@pytest.mark.parametrize(
    ("uri", "output", "folder"),
    [
        ("s3://lake/t/dt=2026-01-01/a.parquet", "s3://out/", "dt=2026-01-01"),
        ("s3://lake/t/dt=2026-01-01/hour=7/a.parquet", "s3://out/", "dt=2026-01-01/hour=7"),
        ("s3://lake/t/dt=2026-01-01/hour=7/a.parquet", "s3://out/dt=2026-01-01/", "hour=7"),
        ("/data/dt=2026-01-01/a.parquet", "/data/out", "dt=2026-01-01"),
        ("s3://lake/t/a.parquet", "s3://out", ""),
        ("s3://lake/t/dt=1.parquet", "s3://out", ""),
        ("s3://lake/2026=x/a.parquet", "s3://out", ""),
        ("a.parquet", "out", ""),
    ],
)
def test_parts_keep_the_partition_folders_of_their_file(uri: str, output: str, folder: str) -> None:
    assert partition_folder(uri, output) == folder


def test_a_parts_name_says_its_shard_and_its_work() -> None:
    key = plan_key(PLAN)[:8]
    assert part_names(PLAN) == [
        f"dt=2026-01-01/part-000000-1f0c9a52-{key}.parquet",
        f"dt=2026-01-01/part-000001-1f0c9a52-{key}.parquet",
    ]


def test_what_is_left_to_do_is_what_has_no_part_of_this_plan() -> None:
    first, second = part_names(PLAN)
    other = part_names(PLAN.model_copy(update={"fingerprint": "0" * 64}))

    assert missing_shards(PLAN, []) == [0, 1]
    assert missing_shards(PLAN, [second, "_SUCCESS", *other]) == [0]
    assert missing_shards(PLAN, [second, first]) == []
