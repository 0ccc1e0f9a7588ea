"""A run is planned from its files alone, and of all plans of an output one stands."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk import BulkClassify
from schemas.bulk_examples import MANIFEST, PLAN
from schemas.bulk_plan import BulkPlan, Shard
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.columns import part_schema
from tasks.bulk.coordinator import load_plan, plan_run, publish_plan
from tasks.bulk.failures import is_transient
from tasks.bulk.layout import manifest_uri, plan_uri
from tasks.bulk.planning import fingerprint, plan_key
from tasks.bulk.stores import Stores
from worker.storage.errors import NotConditional, Unavailable
from worker.storage.local import LocalStore
from worker.storage.objects import Creation, ObjectInfo, prove_conditional
from worker.storage.unify import schema_from_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from worker.storage.tables import Table

AT = datetime(2026, 1, 2, 1, 0, tzinfo=UTC)
OURS = [("label", "string"), ("score", "double"), ("truncated", "bool"), ("error_code", "string")]


@dataclass
class Lake:
    """A directory with inputs and an output, and what was measured there."""

    root: Path
    rows_per_s: float = 1e9
    measured: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return str(self.root / "out")

    def uri(self, name: str) -> str:
        return str(self.root / "in" / name)

    def parquet(self, name: str, table: pa.Table | None = None, row_group_size: int = 1000) -> str:
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(texts(3) if table is None else table, path, row_group_size=row_group_size)
        return str(path)

    def write(self, name: str, content: bytes) -> str:
        LocalStore().put_bytes(self.uri(name), content)
        return self.uri(name)

    def request(self, **fields: Any) -> BulkClassify:  # noqa: ANN401 - any of its fields
        return BulkClassify(**({"inputs": [str(self.root / "in")], "output": self.output, "text": "text"} | fields))

    def plan(self, job_id: str = "run-1", *, is_multi_label: bool = False, **fields: Any) -> BulkPlan:  # noqa: ANN401 - as above
        def measure(table: Table) -> float:
            self.measured.append(table.name)
            assert sum(len(batch["text"]) for batch in table.texts(["text"], 0, table.rows)) == table.rows > 0
            return self.rows_per_s

        return plan_run(
            Stores(),
            self.request(**fields),
            job_id=job_id,
            model=PLAN.model,
            limits=PLAN.limits,
            is_multi_label=is_multi_label,
            measure=measure,
            now=lambda: AT,
        )

    def refusal(self, **fields: Any) -> MessageError:  # noqa: ANN401 - as above
        with pytest.raises(MessageError) as refused:
            self.plan(**fields)
        return refused.value


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def texts(rows: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"text": [f"ticket {row}" for row in range(rows)], **columns})


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


def test_a_published_plan_is_the_one_that_is_loaded(lake: Lake) -> None:
    lake.parquet("a.parquet")
    store, plan = LocalStore(), lake.plan()
    assert publish_plan(store, plan) == plan
    assert load_plan(store, plan_uri(lake.output), plan_key(plan)) == load_plan(store, plan_uri(lake.output)) == plan
    assert [path.name for path in (lake.root / "out").rglob("*")] == ["_batchmill", "plan.json"]


def test_a_plan_of_the_same_work_is_adopted_whoever_made_it_and_however_it_was_cut(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(500))
    store, first = LocalStore(), publish_plan(LocalStore(), lake.plan())
    second = lake.plan("run-2", shard_rows=7, strict=True)
    assert publish_plan(store, second) == first
    assert load_plan(store, plan_uri(lake.output)) == first


class Overwriting(LocalStore):
    """A store that ignores the condition, as some gateways do."""

    def put_bytes(self, uri: str, content: bytes, *, only_new: bool = False) -> Creation:  # noqa: ARG002 - that is it
        return super().put_bytes(uri, content)

    def probe(self, prefix: str) -> None:
        prove_conditional(self, prefix)


def test_a_store_that_overwrites_gets_no_plan_and_one_that_has_a_plan_is_not_asked(lake: Lake) -> None:
    lake.parquet("a.parquet")
    plan = lake.plan()
    with pytest.raises(MessageError, match="If-None-Match") as refused:
        publish_plan(Overwriting(), plan)
    assert refused.value.code is ErrorCode.UNSUPPORTED_STORE
    assert isinstance(refused.value.__cause__, NotConditional)
    assert not LocalStore().exists(plan_uri(lake.output))

    publish_plan(LocalStore(), plan)
    assert publish_plan(Overwriting(), lake.plan("run-2")) == plan


def test_an_output_of_other_work_is_in_use(lake: Lake) -> None:
    lake.parquet("a.parquet")
    publish_plan(LocalStore(), lake.plan())
    lake.parquet("b.parquet")
    with pytest.raises(MessageError, match=r"run run-1, of other work") as refused:
        publish_plan(LocalStore(), lake.plan("run-2"))
    assert refused.value.code is ErrorCode.OUTPUT_IN_USE


@pytest.mark.parametrize("left", ["_batchmill/plan.json", "manifest.json"])
def test_an_output_that_nobody_can_read_or_whose_plan_is_gone_is_in_use(lake: Lake, left: str) -> None:
    lake.parquet("a.parquet")
    LocalStore().put_bytes(f"{lake.output}/{left}", b"{}")
    with pytest.raises(MessageError, match=lake.output) as refused:
        publish_plan(LocalStore(), lake.plan())
    assert refused.value.code is ErrorCode.OUTPUT_IN_USE


def test_parts_of_others_without_a_plan_are_in_nobodys_way(lake: Lake) -> None:
    lake.parquet("a.parquet")
    LocalStore().put_bytes(f"{lake.output}/part-000000-1f0c9a52-b7d2e4f1.parquet", b"x")
    plan = lake.plan()
    assert publish_plan(LocalStore(), plan) == plan


def test_of_many_who_plan_at_once_one_plan_stands_and_all_go_by_it(lake: Lake) -> None:
    lake.parquet("a.parquet", texts(100))
    plans = [lake.plan(f"run-{number}", shard_rows=number + 1) for number in range(8)]
    barrier = threading.Barrier(len(plans))

    def publish(plan: BulkPlan) -> BulkPlan:
        barrier.wait()
        return publish_plan(LocalStore(), plan)

    with ThreadPoolExecutor(len(plans)) as pool:
        returned = list(pool.map(publish, plans))
    assert returned == [load_plan(LocalStore(), plan_uri(lake.output))] * len(plans)
    assert returned[0] in plans


def test_a_plan_that_is_gone_another_or_none_is_missing(lake: Lake) -> None:
    lake.parquet("a.parquet")
    store, uri = LocalStore(), plan_uri(lake.output)
    for content, key in ((None, None), (b"{}", None), (lake.plan().model_dump_json().encode(), "0" * 64)):
        if content is not None:
            store.put_bytes(uri, content)
        with pytest.raises(MessageError, match=uri) as refused:
            load_plan(store, uri, key)
        assert refused.value.code is ErrorCode.PLAN_MISSING


class Failing(LocalStore):
    """A store that does not answer when it is asked about a file."""

    def info(self, uri: str) -> ObjectInfo:
        raise Unavailable(uri, "the store is busy; try again later")

    def get_bytes(self, uri: str) -> bytes:
        raise Unavailable(uri, "the store is busy; try again later")


def test_a_store_that_fails_is_told_as_such_and_may_be_asked_again(lake: Lake) -> None:
    lake.parquet("a.parquet")
    plan = lake.plan()

    def plan_again() -> None:
        plan_run(
            Stores(lambda _: Failing()),
            lake.request(),
            job_id="run-2",
            model=PLAN.model,
            limits=PLAN.limits,
            is_multi_label=False,
            measure=lambda _: 1.0,
        )

    for step in (plan_again, lambda: publish_plan(Failing(), plan), lambda: load_plan(Failing(), "/out/plan.json")):
        with pytest.raises(MessageError, match="busy") as refused:
            step()
        assert refused.value.code is ErrorCode.STORE_UNAVAILABLE
        assert is_transient(refused.value)


def test_an_output_is_planned_as_every_worker_means_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.parquet("a.parquet")
    monkeypatch.chdir(lake.root)
    assert lake.plan(output="out/").request.output == lake.output
    assert lake.plan(output="out/").fingerprint == lake.plan().fingerprint
