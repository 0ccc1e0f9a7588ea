"""A bulk run is planned once: what it reads and in which order, its shards, its identities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bulk import BulkClassify
from schemas.bulk_examples import MANIFEST, PLAN
from schemas.bulk_plan import BulkPlan, InputFile, Shard
from schemas.errors import MessageError
from tasks.bulk.planning import ShardPolicy, arrange, cut, fingerprint, plan_key, split_covered


def file_of(uri: str = "s3://lake/a.parquet", **fields: Any) -> InputFile:  # noqa: ANN401 - any of its fields
    return InputFile(**({"uri": uri, "size_bytes": 10, "etag": f"etag of {uri}", "rows": 0} | fields))


def at_most(rows: int) -> ShardPolicy:
    return ShardPolicy(rows_per_s=1.0, max_s=float("1e9")).capped(rows)


def request_with(**fields: Any) -> BulkClassify:  # noqa: ANN401 - any of its fields
    return BulkClassify(**({"inputs": ["s3://lake/*"], "output": "s3://lake/out", "text": "body"} | fields))


row_groups = st.lists(st.integers(0, 400), max_size=8)
tables = st.lists(row_groups | st.integers(0, 2_000), min_size=1, max_size=5)
policies = st.integers(1, 500).map(at_most) | st.builds(
    ShardPolicy,
    rows_per_s=st.floats(0.01, 1e4),
    max_s=st.floats(0.1, 60),
    min_rows=st.integers(1, 100),
    max_rows=st.integers(100, 1_000),
)


def files_of(tables: list[list[int] | int]) -> tuple[list[InputFile], list[list[int]]]:
    """Files with row groups, and files that have rows only."""
    groups = [table if isinstance(table, list) else [] for table in tables]
    rows = [sum(table) if isinstance(table, list) else table for table in tables]
    return [file_of(f"{index}.parquet", rows=count) for index, count in enumerate(rows)], groups


@given(tables, policies)
def test_every_row_is_in_exactly_one_shard_and_in_order(tables: list[list[int] | int], policy: ShardPolicy) -> None:
    files, groups = files_of(tables)

    shards = cut(files, groups, policy)

    covered = [(shard.file, row) for shard in shards for row in range(shard.start, shard.stop)]
    assert covered == [(index, row) for index, file in enumerate(files) for row in range(file.rows)]


@given(tables, policies)
def test_no_shard_is_larger_than_the_policy_allows_nor_empty(
    tables: list[list[int] | int], policy: ShardPolicy
) -> None:
    files, groups = files_of(tables)

    sizes = [shard.rows for shard in cut(files, groups, policy)]

    assert max(sizes) <= policy.shard_rows
    assert min(sizes) > 0 or (sizes == [0] and not any(file.rows for file in files))


@given(tables, policies)
def test_a_file_is_cut_into_few_pieces(tables: list[list[int] | int], policy: ShardPolicy) -> None:
    files, groups = files_of(tables)

    shards = cut(files, groups, policy)

    for index, file in enumerate(files):
        pieces = sum(shard.file == index and shard.rows > 0 for shard in shards)
        assert pieces <= -(-2 * file.rows // policy.shard_rows)


@given(tables, policies)
def test_a_plan_takes_what_was_cut(tables: list[list[int] | int], policy: ShardPolicy) -> None:
    files, groups = files_of(tables)

    assert plan_of(files, cut(files, groups, policy)).rows == sum(file.rows for file in files)


@given(st.integers(1, 40), st.integers(1, 500), st.integers(1, 3))
def test_equal_row_groups_are_kept_whole_where_they_fit(groups: int, rows: int, per_shard: int) -> None:
    shards = cut([file_of(rows=groups * rows)], [[rows] * groups], at_most(rows * per_shard))

    assert all(shard.stop % rows == 0 for shard in shards)


@pytest.mark.parametrize(
    ("groups", "stops"),
    [
        pytest.param([100, 100, 100], [100, 200, 300], id="each group a shard"),
        pytest.param([50] * 6, [100, 200, 300], id="groups together"),
        pytest.param([300], [100, 200, 300], id="a large group is split"),
        pytest.param([90, 210], [90, 160, 230, 300], id="a boundary near by is taken"),
        pytest.param([10, 290], [100, 200, 300], id="one far away is not"),
        pytest.param([0, 100, 0, 200, 0], [100, 200, 300], id="groups without rows"),
        pytest.param([], [100, 200, 300], id="no groups"),
    ],
)
def test_a_cut_moves_to_a_row_groups_end_that_is_near(groups: list[int], stops: list[int]) -> None:
    assert [shard.stop for shard in cut([file_of(rows=300)], [groups], at_most(100))] == stops


def test_pieces_are_of_about_the_same_size() -> None:
    assert [shard.rows for shard in cut([file_of(rows=101)], [[]], at_most(100))] == [51, 50]


def test_a_file_without_rows_has_no_shard_but_a_run_without_rows_has_one() -> None:
    empty, full = file_of("a", rows=0), file_of("b", rows=5)

    assert cut([empty, full, empty], [[], [], []], at_most(9)) == [Shard(file=1, start=0, stop=5)]
    assert cut([empty, empty], [[0], []], at_most(9)) == [Shard(file=0, start=0, stop=0)]
    assert cut([], [], at_most(9)) == []


def test_row_groups_that_do_not_add_up_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"a\.parquet: its row groups have 3 rows, the file has 4"):
        cut([file_of("a.parquet", rows=4)], [[1, 2]], at_most(9))


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        pytest.param(ShardPolicy(60.0), 2_048, id="a minute's work, rounded down"),
        pytest.param(ShardPolicy(64.0), 2_048, id="nearly the same speed"),
        pytest.param(ShardPolicy(1_400.0), 65_536, id="a fast model"),
        pytest.param(ShardPolicy(0.001), 64, id="the lower bound"),
        pytest.param(ShardPolicy(1e9), 262_144, id="the upper bound"),
        pytest.param(ShardPolicy(0.001, min_rows=1), 1, id="less than a row"),
        pytest.param(ShardPolicy(1_400.0).capped(1_000), 1_000, id="as the request says"),
        pytest.param(ShardPolicy(60.0).capped(1_000_000), 2_048, id="a minute holds all the same"),
        pytest.param(ShardPolicy(0.001).capped(10), 10, id="below the lower bound"),
        pytest.param(ShardPolicy(60.0).capped(None), 2_048, id="the request says nothing"),
    ],
)
def test_a_shard_is_a_minutes_work_within_bounds(policy: ShardPolicy, rows: int) -> None:
    assert policy.shard_rows == rows


@given(st.floats(10, 1e4), st.floats(1, 60))
def test_a_shard_within_the_bounds_never_takes_longer_than_allowed(rows_per_s: float, max_s: float) -> None:
    assert ShardPolicy(rows_per_s, max_s, min_rows=1).shard_rows / rows_per_s <= max_s


# Identity and order


def plan_of(files: list[InputFile], shards: list[Shard], **fields: object) -> BulkPlan:
    made = PLAN.model_copy(update={"inputs": files, "shards": shards} | fields)
    return BulkPlan.model_validate_json(made.model_dump_json())


inputs = st.lists(
    st.builds(
        lambda name, folder: file_of(f"s3://lake/{folder}/{name}.parquet", folder=folder),
        st.sampled_from(["a", "b", "Ä"]),
        st.sampled_from(["", "dt=2026-01-01", "dt=2026-01-10"]),
    ),
    max_size=8,
    unique_by=lambda file: file.uri,
)


@given(inputs.flatmap(lambda files: st.tuples(st.just(files), st.permutations(files))))
def test_neither_order_nor_repetition_of_the_inputs_matters(pair: tuple[list[InputFile], list[InputFile]]) -> None:
    files, shuffled = pair

    assert arrange(files + shuffled) == arrange(shuffled)
    assert fingerprint(files, PLAN.model, PLAN.request) == fingerprint(shuffled, PLAN.model, PLAN.request)


def test_a_file_that_was_replaced_between_two_listings_is_refused() -> None:
    with pytest.raises(MessageError, match=r"input_changed: s3://lake/a\.parquet"):
        arrange([file_of(), file_of(etag="another")])


FILE = file_of()
WORK = fingerprint([FILE], PLAN.model, request_with())


@pytest.mark.parametrize("change", [{"etag": "b"}, {"size_bytes": 11}, {"uri": "s3://lake/b.parquet"}], ids=str)
def test_another_input_is_other_work(change: dict[str, object]) -> None:
    changed = FILE.model_copy(update=change)
    assert fingerprint([changed], PLAN.model, request_with()) != WORK
    assert fingerprint([FILE, changed], PLAN.model, request_with()) != WORK


@pytest.mark.parametrize("field", ["name", "version", "sha256", "precision"])
def test_another_model_is_other_work(field: str) -> None:
    model = PLAN.model.model_copy(update={field: "0" * 64})
    assert fingerprint([FILE], model, request_with()) != WORK


SHOWS = {
    "text": "subject",
    "id": "key",
    "top_k": 3,
    "truncation": "head",
    "threshold": 0.3,
    "dedupe": False,
    "column_prefix": "bm_",
    "compression": "snappy",
    "row_group_rows": 10,
}
SHOWS_NOT = {
    "inputs": ["s3://lake/a.parquet"],
    "output": "s3://other/out",
    "model": "default",
    "shard_rows": 7,
    "max_rejection_rate": 0.1,
    "strict": True,
    "since_manifest": "s3://lake/manifest.json",
    "schema_version": 1,
}


@pytest.mark.parametrize(("field", "value"), SHOWS.items())
def test_a_setting_that_shows_in_the_bytes_is_other_work(field: str, value: object) -> None:
    assert fingerprint([FILE], PLAN.model, request_with(**{field: value})) != WORK


@pytest.mark.parametrize(("field", "value"), SHOWS_NOT.items())
def test_a_setting_that_does_not_is_the_same_work(field: str, value: object) -> None:
    assert fingerprint([FILE], PLAN.model, request_with(**{field: value})) == WORK


def test_every_setting_is_decided_to_show_or_not() -> None:
    assert set(BulkClassify.model_fields) == SHOWS.keys() | SHOWS_NOT.keys() | {"subject", "body"}
    parts = [fingerprint([FILE], PLAN.model, request_with(text=None, **{name: "c"})) for name in ("subject", "body")]
    assert len({WORK, *parts}) == 3


def test_identities_stay_as_they_are_between_versions() -> None:
    assert (
        fingerprint(PLAN.inputs, PLAN.model, PLAN.request)
        == "1c68eaf0a6dc83ef15d8166c1456e888977adac06b7dd408e8fd6d83fc74ed08"
    )
    assert plan_key(PLAN) == "0f0d94c88ee750a03f65e03eb489fa01344835ba84da21283bf1d0485b3b096c"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"job_id": "another"}, True, id="who made it"),
        pytest.param({"planned_at": MANIFEST.finished_at}, True, id="when"),
        pytest.param({"fingerprint": "0" * 64}, False, id="other work"),
        pytest.param({"shards": [Shard(file=0, start=0, stop=100)]}, False, id="another cut"),
        pytest.param({"limits": PLAN.limits.model_copy(update={"call_cost_tokens": 9.0})}, False, id="other batches"),
    ],
)
def test_a_plan_is_known_by_its_work_its_batches_and_its_cut(change: dict[str, object], *, same: bool) -> None:
    changed = PLAN.model_copy(update=change)
    assert (plan_key(changed) == plan_key(PLAN)) is same


def test_a_nightly_run_skips_what_the_last_manifest_covers() -> None:
    (old,) = MANIFEST.inputs
    older = file_of("s3://lake/older.parquet")
    manifest = MANIFEST.model_copy(update={"carried": [older]})
    changed, moved, new = old.model_copy(update={"etag": "x"}), old.model_copy(update={"uri": "m"}), file_of("n")

    assert split_covered([old, older, moved, new], manifest) == ([moved, new], [old, older])
    assert split_covered([changed, older], manifest) == ([changed], [older])
    assert split_covered([old, new], None) == ([old, new], [])
