"""A run is planned from its files alone, and what is wrong with one of them is told before a row costs anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from schemas.bulk_examples import MANIFEST, PLAN
from schemas.bulk_plan import BulkPlan, Shard
from schemas.errors import ErrorCode
from tasks.bulk.columns import part_schema
from tasks.bulk.layout import manifest_uri
from tasks.bulk.planning import fingerprint
from tests.lakes import AT, Lake, texts
from worker.storage.local import LocalStore
from worker.storage.unify import schema_from_bytes

if TYPE_CHECKING:
    from pathlib import Path

OURS = [("label", "string"), ("score", "double"), ("truncated", "bool"), ("error_code", "string")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def columns_of(plan: BulkPlan) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in plan.columns]


def test_a_plan_pins_the_files_the_columns_and_the_cut(lake: Lake) -> None:
    later = lake.parquet("dt=2/a.parquet", texts(5))
    first = lake.parquet("dt=1/b.parquet", texts(300), row_group_size=130)
    plan = lake.plan(shard_rows=150, id="text")

    assert [(file.uri, file.rows, file.folder) for file in plan.inputs] == [(first, 300, "dt=1"), (later, 5, "dt=2")]
    cut = [(0, 0, 130), (0, 130, 215), (0, 215, 300), (1, 0, 5)]  # the first at a row group's end
    assert [(shard.file, shard.start, shard.stop) for shard in plan.shards] == cut
    assert plan.rows == 305
    assert columns_of(plan) == [("text", "string"), *OURS]
    assert (plan.job_id, plan.planned_at, plan.model, plan.limits) == ("run-1", AT, PLAN.model, PLAN.limits)
    assert plan.request == lake.request(shard_rows=150, id="text")
    assert plan.fingerprint == fingerprint(plan.inputs, PLAN.model, plan.request)
    assert lake.measured == [first]


def test_a_plan_reads_back_as_it_was_written(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(2, amount=[1, 2]))
    lake.write("b.csv", b"text,amount\nx,1\n".replace(b"amount", b"Betr\xc3\xa4ge"))
    plan = lake.plan()
    assert plan.inputs[1].scan is not None
    assert BulkPlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_minute_of_the_measured_speed_is_the_most_in_a_shard(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(1000))
    lake.rows_per_s = 128 / 60
    assert max(shard.rows for shard in lake.plan().shards) <= 128
    assert max(shard.rows for shard in lake.plan(shard_rows=1000).shards) <= 128
    assert max(shard.rows for shard in lake.plan(shard_rows=10).shards) <= 10


def test_files_that_differ_are_unified_before_any_row_is_read(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(2, amount=pa.array([1, 2], pa.int32())).replace_schema_metadata({"origin": "crm"}))
    lake.parquet("b.parquet", texts(2, amount=pa.array([1, 2], pa.int64()), tags=[["a"], None]))
    plan = lake.plan()
    assert columns_of(plan) == [("text", "string"), ("amount", "int64"), ("tags", "list<element: string>"), *OURS]
    assert plan.arrow_schema is not None
    assert schema_from_bytes(plan.arrow_schema).equals(part_schema(plan).schema, check_metadata=True)
    assert schema_from_bytes(plan.arrow_schema).metadata == {b"origin": b"crm"}


def test_the_scores_of_several_labels_have_a_column(lake: Lake) -> None:
    lake.parquet("a.parquet")
    for plan in (lake.plan(is_multi_label=True), lake.plan(top_k=2)):
        names = [column.name for column in plan.columns]
        assert names == ["text", "label", "score", "scores", "truncated", "error_code"]


@pytest.mark.parametrize(
    ("columns", "fields", "code", "words"),
    [
        ({"words": ["x"]}, {}, ErrorCode.UNKNOWN_COLUMN, "column 'text'"),
        ({"text": [1]}, {}, ErrorCode.SCHEMA_MISMATCH, "int64, not text"),
        ({"text": ["x"]}, {"id": "key"}, ErrorCode.UNKNOWN_COLUMN, "column 'key'"),
        ({"text": ["x"], "label": ["x"]}, {}, ErrorCode.COLUMN_EXISTS, "column_prefix"),
        ({"text": ["x"], "x_score": ["x"]}, {"column_prefix": "x_"}, ErrorCode.COLUMN_EXISTS, "'x_score'"),
        ({"text": ["x"], "key": ["many"]}, {}, ErrorCode.SCHEMA_MISMATCH, "column 'key'"),
    ],
    ids=["no text", "no string", "no id", "a result's name", "a prefixed one", "no common type"],
)
def test_one_wrong_file_among_many_is_named_before_anything_is_measured(
    lake: Lake, columns: dict[str, list[Any]], fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    for number in range(9):
        lake.parquet(f"a{number}.parquet", texts(1, key=[number]))
    wrong = lake.parquet("b.parquet", pa.table(columns))
    refused = lake.refusal(**fields)
    assert refused.code is code
    assert words in str(refused)
    assert wrong in str(refused)
    assert lake.measured == []


def test_an_id_that_is_called_as_a_column_of_the_rejects_needs_a_prefix(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(1, file=["x"]))
    assert lake.refusal(id="file").code is ErrorCode.COLUMN_EXISTS
    assert lake.plan(id="file", column_prefix="x_").rows == lake.plan().rows == 1


def test_a_column_of_a_results_name_is_kept_beside_it_under_a_prefix(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(1, label=["x"]))
    plan = lake.plan(column_prefix="model_")
    assert columns_of(plan) == [("text", "string"), ("label", "string"), *((f"model_{n}", kind) for n, kind in OURS)]
    assert [column.name for column in part_schema(plan).results] == ["label", "score", "truncated", "error_code"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"inputs": ["/nowhere/*.parquet"]}, ErrorCode.NO_INPUTS),
        ({"inputs": ["gs://lake/*.parquet"]}, ErrorCode.INVALID_MESSAGE),
        ({"output": "gs://lake/out"}, ErrorCode.INVALID_MESSAGE),
        ({"since_manifest": "/nowhere/manifest.json"}, ErrorCode.OBJECT_NOT_FOUND),
    ],
)
def test_an_address_of_nothing_is_told_by_its_code(lake: Lake, fields: dict[str, Any], code: ErrorCode) -> None:
    lake.parquet("a.parquet")
    assert lake.refusal(**fields).code is code


def test_a_run_without_rows_has_one_empty_shard_and_measures_nothing(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(0))
    lake.write("b.jsonl", b"")
    plan = lake.plan()
    assert plan.shards == [Shard(file=0, start=0, stop=0)]
    assert lake.measured == []


def test_the_first_file_that_has_rows_is_measured(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(0))
    lake.parquet("b.parquet")
    lake.parquet("c.parquet")
    lake.plan()
    assert lake.measured == [lake.uri("b.parquet")]


def earlier_run(lake: Lake, plan: BulkPlan) -> str:
    """The manifest that a run of this plan leaves, in an output of its own."""
    totals = MANIFEST.totals.model_copy(update={"rows": plan.rows, "labelled": 0, "unlabelled": plan.rows})
    totals = totals.model_copy(update={"errors": {}, "labels": {}, "scores": [0] * 20, "truncated": 0, "repeated": 0})
    parts = [MANIFEST.parts[0].model_copy(update={"rows": plan.rows})]
    changes = {"inputs": plan.inputs, "carried": plan.carried, "parts": parts, "totals": totals, "label_shares": {}}
    uri = manifest_uri(str(lake.root / "earlier"))
    LocalStore().put_bytes(uri, MANIFEST.model_copy(update=changes).model_dump_json().encode())
    return uri


def test_what_an_earlier_run_covers_is_carried_and_not_opened(lake: Lake) -> None:
    for name in ("a.parquet", "b.csv"):
        lake.parquet(name) if name.endswith("t") else lake.write(name, b"text\nx\n")
    earlier = lake.plan()
    since = earlier_run(lake, earlier)
    new = lake.parquet("c.parquet", texts(7))
    changed = lake.parquet("a.parquet", texts(9))
    plan = lake.plan(since_manifest=since)
    assert [(file.uri, file.rows) for file in plan.inputs] == [(changed, 9), (new, 7)]
    assert plan.carried == [earlier.inputs[1]]
    assert lake.measured[-1] == changed


def test_a_run_in_which_nothing_is_new_has_our_columns_and_no_shard(lake: Lake) -> None:
    lake.parquet("a.parquet")
    earlier = lake.plan()
    plan = lake.plan(since_manifest=earlier_run(lake, earlier))
    assert (plan.inputs, plan.shards, plan.carried) == ([], [], earlier.inputs)
    assert columns_of(plan) == OURS
    assert part_schema(plan).inputs.names == []
    assert BulkPlan.model_validate_json(plan.model_dump_json()) == plan
    assert len(lake.measured) == 1


def test_what_is_no_manifest_is_refused(lake: Lake) -> None:
    lake.parquet("a.parquet")
    refused = lake.refusal(since_manifest=lake.write("other.json", b'{"rows": 3}'))
    assert refused.code is ErrorCode.UNREADABLE_INPUT
    assert "no manifest" in str(refused)


def test_an_output_is_planned_as_every_worker_means_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.parquet("a.parquet")
    monkeypatch.chdir(lake.root)
    assert lake.plan(output="out/").request.output == lake.output
    assert lake.plan(output="out/").fingerprint == lake.plan().fingerprint
