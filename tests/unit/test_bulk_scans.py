"""A run that reads documents is planned from its inputs alone: which documents, cut by an estimate of their pages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bulk_examples import PLAN
from schemas.bulk_manifest import PageTally
from schemas.bulk_ocr import BulkOcr
from schemas.bulk_plan import BulkPlan
from schemas.errors import ErrorCode, MessageError
from schemas.names import QUEUE_BULK, QUEUE_BULK_OCR
from tasks.bulk.columns import part_schema, rejects_schema
from tasks.bulk.coordinator import load_plan, publish_plan
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import is_listing, is_of_a_run, listing_uri, manifest_uri, plan_uri
from tasks.bulk.listing import list_documents, listed, listing_of, open_listing
from tasks.bulk.planning import cut_sizes, plan_key
from tasks.bulk.scans import Speed, plan_scans, shard_policy
from tasks.bulk.sending import queue_of
from tasks.bulk.stores import Stores
from tests.lakes import AT, Lake
from worker.storage.errors import Changed
from worker.storage.labelling import Span
from worker.storage.local import LocalStore
from worker.storage.rows import MARK_EVERY_ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.bulk.scans import Planned

OURS = ["page", "pages", "width", "height", "rotation", "text", "confidence", "lines", "error_code"]


@dataclass
class Scans:
    """A folder of documents and tables, and plans of runs over it."""

    root: Path
    speed: Speed = field(default_factory=lambda: Speed(1e9, None))
    measured: list[list[str]] = field(default_factory=list)

    def write(self, *names: str, content: bytes = b"scan") -> list[str]:
        paths = [self.root / "in" / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return [str(path) for path in paths]

    def table(self, columns: dict[str, Any], name: str = "list.parquet", row_group_size: int = 1_000) -> str:
        path = self.root / name
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return str(path)

    def request(self, **fields: object) -> BulkOcr:
        request = {"inputs": [str(self.root / "in")], "output": str(self.root / "out"), **fields}
        return BulkOcr.model_validate(request)

    def plan(self, job_id: str = "run-1", **fields: object) -> Planned:
        def measure(span: Span) -> Speed:
            column = fields.get("uri") or fields.get("content") or "uri"
            texts = span.table.texts([str(column)], span.start, span.stop)
            self.measured.append([str(text) for batch in texts for text in batch[str(column)]])
            return self.speed

        return plan_scans(
            Stores(),
            self.request(**fields),
            job_id=job_id,
            model=PLAN.model,
            limits=PLAN.limits,
            measure=measure,
            now=lambda: AT,
        )

    def publish(self, planned: Planned) -> BulkPlan:
        return publish_plan(LocalStore(), planned.plan, planned.listing)

    def refusal(self, **fields: object) -> MessageError:
        with pytest.raises(MessageError) as refused:
            self.plan(**fields)
        return refused.value


@pytest.fixture
def scans(tmp_path: Path) -> Scans:
    return Scans(tmp_path)


def cuts(plan: BulkPlan) -> list[tuple[int, int, int]]:
    return [(shard.file, shard.start, shard.stop) for shard in plan.shards]


# documents as inputs


def test_documents_are_listed_once_in_order_and_pinned_as_they_were(scans: Scans) -> None:
    uris = scans.write("b/2.png", "a/1.pdf", "b/ä ö.tif")
    scans.write("b/.hidden", "_old/3.png")

    planned = scans.plan(inputs=[str(scans.root / "in"), uris[0]], shard_rows=2)
    plan = scans.publish(planned)

    (file,) = plan.inputs
    assert (file.rows, file.format, is_listing(file.uri)) == (3, "jsonl", True)
    with open_listing(LocalStore(), file) as table:
        found = list(listed(Span(table, 0, 3)))
    assert [info.uri for info in found] == sorted(uris)
    assert found == [LocalStore().info(uri) for uri in sorted(uris)]
    assert cuts(plan) == [(0, 0, 2), (0, 2, 3)]
    assert [column.name for column in plan.columns] == ["file", "row", "uri", *OURS]
    assert scans.measured == [sorted(uris)]


def test_planning_writes_nothing_and_publishing_writes_the_list_before_the_plan(scans: Scans) -> None:
    scans.write("1.png")
    planned = scans.plan()
    assert not (scans.root / "out").exists()

    plan = scans.publish(planned)

    assert sorted(path.name for path in (scans.root / "out" / "_batchmill").iterdir()) == [
        plan.inputs[0].uri.rpartition("/")[2],
        "plan.json",
    ]
    assert load_plan(LocalStore(), plan_uri(plan.request.output), plan_key(plan)) == plan


def test_the_same_documents_are_the_same_work_and_a_replaced_one_is_other_work(scans: Scans) -> None:
    (uri,) = scans.write("1.png")
    first = scans.publish(scans.plan())

    assert scans.publish(scans.plan("run-2")) == first
    scans.write("1.png", content=b"another")
    with pytest.raises(MessageError, match="output_in_use"):
        scans.publish(scans.plan("run-3"))
    assert uri in scans.measured[-1]


def test_what_a_run_leaves_is_no_document_of_the_next(scans: Scans) -> None:
    scans.write("1.png")
    whole = [str(scans.root)]
    plan = scans.publish(scans.plan(inputs=whole))
    for name in ("manifest.json", "_SUCCESS", "part-000000-1f0c9a52-b7d2e4f1.parquet"):
        (scans.root / "out" / name).write_bytes(b"x")

    assert scans.plan(inputs=whole).plan.fingerprint == plan.fingerprint
    assert is_of_a_run(plan.inputs[0].uri, plan.request.output)


def test_a_pattern_without_any_document_is_named(scans: Scans) -> None:
    scans.write("1.png")
    refused = scans.refusal(inputs=[f"{scans.root}/in/*.png", f"{scans.root}/in/*.pdf"])

    assert refused.code is ErrorCode.NO_INPUTS
    assert "in/*.pdf: no document matches" in str(refused)


def test_a_list_that_was_overwritten_or_is_gone_is_no_longer_the_planned_one(scans: Scans) -> None:
    scans.write("1.png")
    (file,) = scans.publish(scans.plan()).inputs
    LocalStore().put_bytes(file.uri, b"other")
    with pytest.raises(Changed, match="overwritten"), open_listing(LocalStore(), file):
        pass
    LocalStore().delete(file.uri)
    with pytest.raises(Changed, match="gone"), open_listing(LocalStore(), file):
        pass


def test_a_long_list_is_read_from_its_marks(scans: Scans) -> None:
    scans.write("1.png")
    (one,) = list_documents(Stores(), [str(scans.root / "in")], str(scans.root / "out"))
    listing = listing_of([one] * (MARK_EVERY_ROWS + 7), str(scans.root / "out"))
    assert listing is not None
    assert listing.file.scan is not None
    assert len(listing.file.scan.marks) == 2
    LocalStore().put_bytes(listing.file.uri, listing.content)

    with open_listing(LocalStore(), listing.file) as table:
        assert list(listed(Span(table, MARK_EVERY_ROWS + 5, MARK_EVERY_ROWS + 7))) == [one] * 2


def test_the_next_night_lists_only_what_is_new(scans: Scans) -> None:
    scans.write("1.png")
    first = scans.publish(scans.plan())
    manifest = manifest_uri(first.request.output)
    finished = json.loads(_finished(first))
    LocalStore().put_bytes(manifest, json.dumps(finished).encode())
    (new,) = scans.write("2.png")

    second = scans.plan(output=str(scans.root / "second"), since_manifest=manifest)
    assert second.listing is not None
    assert second.listing.file.rows == 1
    assert scans.measured[-1] == [new]
    assert second.plan.carried == first.inputs

    finished["carried"] = [second.listing.file.model_dump(mode="json")]
    LocalStore().put_bytes(second.listing.file.uri, second.listing.content)
    LocalStore().put_bytes(manifest, json.dumps(finished).encode())
    third = scans.plan(output=str(scans.root / "third"), since_manifest=manifest)
    assert (third.listing, third.plan.inputs, third.plan.shards) == (None, [], [])
    assert finalise(LocalStore(), scans.publish(third)).manifest is not None


def test_documents_cannot_be_told_from_a_run_that_read_tables(scans: Scans) -> None:
    scans.write("1.png")
    plan = scans.publish(scans.plan(uri="uri", inputs=[scans.table({"uri": ["s3://a/b"]})], output=f"{scans.root}/old"))
    LocalStore().put_bytes(manifest_uri(plan.request.output), _finished(plan).encode())

    refused = scans.refusal(since_manifest=manifest_uri(plan.request.output))

    assert refused.code is ErrorCode.UNREADABLE_INPUT
    assert "read tables" in str(refused)


def _finished(plan: BulkPlan) -> str:
    """Return a manifest of a plan, as far as the next plan looks at it."""
    totals = PageTally(rows=plan.rows, documents=plan.rows, pages=plan.rows, blank=plan.rows)
    document = {
        "job_id": plan.job_id,
        "fingerprint": plan.fingerprint,
        "plan": plan_uri(plan.request.output),
        "plan_key": plan_key(plan),
        "started_at": plan.planned_at.isoformat(),
        "finished_at": plan.planned_at.isoformat(),
        "models": [],
        "parts": [{"uri": "a", "rows": plan.rows, "size_bytes": 1, "sha256": "0" * 64}],
        "totals": totals.model_dump(mode="json"),
        "label_shares": {},
        "rejection_rate": 0.0,
        "inputs": [file.model_dump(mode="json") for file in plan.inputs],
    }
    return json.dumps(document)


# tables


def test_a_table_of_addresses_is_cut_by_rows_and_keeps_only_the_id(scans: Scans) -> None:
    columns = {"key": pa.array(range(10), pa.int32()), "scan": [f"s3://a/{row}" for row in range(10)], "more": [1] * 10}
    uri = scans.table(columns, row_group_size=4)

    plan = scans.plan(inputs=[uri], uri="scan", id="key", shard_rows=4).plan

    assert [(file.uri, file.rows) for file in plan.inputs] == [(uri, 10)]
    assert cuts(plan) == [(0, 0, 4), (0, 4, 8), (0, 8, 10)]  # at the ends of row groups
    assert [(column.name, column.type) for column in plan.columns][:4] == [
        ("key", "int32"),
        ("file", "string"),
        ("row", "int64"),
        ("uri", "string"),
    ]
    assert part_schema(plan).schema.names == ["key", "file", "row", "uri", *OURS]
    assert rejects_schema(plan).schema.names == ["key", "file", "row", "page", "error_code"]


def test_ids_of_files_that_differ_are_unified_and_no_other_column_matters(scans: Scans) -> None:
    first = scans.table({"key": pa.array([1], pa.int32()), "scan": ["a"], "more": [1]}, "1.parquet")
    second = scans.table({"key": pa.array([2], pa.int64()), "scan": ["b"], "more": ["x"]}, "2.parquet")

    plan = scans.plan(inputs=[first, second], content="scan", id="key").plan

    assert [(column.name, column.type) for column in plan.columns][:3] == [
        ("key", "int64"),
        ("file", "string"),
        ("row", "int64"),
    ]
    assert "uri" not in [column.name for column in plan.columns]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        pytest.param({"uri": "gone"}, ErrorCode.UNKNOWN_COLUMN, "column 'gone'", id="no such column"),
        pytest.param({"uri": "number"}, ErrorCode.SCHEMA_MISMATCH, "int64, not text", id="no text"),
        pytest.param({"uri": "scan", "id": "gone"}, ErrorCode.UNKNOWN_COLUMN, "column 'gone'", id="no id"),
        pytest.param({"uri": "scan", "id": "text"}, ErrorCode.COLUMN_EXISTS, "column_prefix", id="a result's name"),
    ],
)
def test_a_wrong_table_is_named_before_a_document_is_opened(
    scans: Scans, fields: dict[str, str], code: ErrorCode, words: str
) -> None:
    uri = scans.table({"scan": ["a"], "number": [1], "text": ["x"]})
    refused = scans.refusal(inputs=[uri], **fields)

    assert refused.code is code
    assert words in str(refused)
    assert scans.measured == []
    assert scans.plan(inputs=[uri], uri="scan", id="text", column_prefix="ocr_").plan.rows == 1


def test_a_table_without_rows_has_a_part_with_the_columns(scans: Scans) -> None:
    uri = scans.table({"scan": pa.array([], pa.string())})

    plan = scans.plan(inputs=[uri], uri="scan").plan

    assert (cuts(plan), scans.measured) == ([(0, 0, 0)], [])


# shards


@pytest.mark.parametrize(
    ("documents_per_s", "asked", "most"),
    [
        pytest.param(1.0, None, 16, id="half a minute's documents, down to a power of two"),
        pytest.param(0.001, None, 1, id="a document that takes longer is a shard"),
        pytest.param(10.0, 20, 20, id="fewer where asked for"),
        pytest.param(0.1, 1_000, 2, id="never more than a minute's, whatever is asked for"),
    ],
)
def test_a_shard_has_a_minutes_documents_with_a_margin(
    scans: Scans, documents_per_s: float, asked: int | None, most: int
) -> None:
    assert shard_policy(Speed(documents_per_s, None), scans.request(shard_rows=asked)).shard_rows == most


def test_large_documents_make_shards_of_fewer(scans: Scans) -> None:
    scans.write(*(f"a{number}.png" for number in range(8)), content=b"x" * 100)
    scans.write(*(f"b{number}.png" for number in range(4)), content=b"x" * 300)
    scans.write("c.png", content=b"x" * 10_000)
    scans.write("d.png", content=b"x")
    scans.speed = Speed(8 * 2 / 60 + 0.01, 100.0)

    assert [stop - start for _, start, stop in cuts(scans.plan().plan)] == [8, 2, 2, 1, 1]


@given(
    sizes=st.lists(st.integers(0, 100), max_size=40),
    most_rows=st.integers(1, 10),
    most_bytes=st.floats(0, 300),
)
def test_a_cut_has_every_document_once_within_the_limits(sizes: list[int], most_rows: int, most_bytes: float) -> None:
    shards = cut_sizes(sizes, most_rows, most_bytes)

    assert [row for shard in shards for row in range(shard.start, shard.stop)] == list(range(len(sizes)))
    for shard in shards:
        assert 1 <= shard.rows <= most_rows
        assert shard.rows == 1 or sum(sizes[shard.start : shard.stop]) <= most_bytes


# what follows from the kind of run


def test_a_run_has_the_queue_of_those_who_can_do_its_work(scans: Scans) -> None:
    lake = Lake(scans.root)
    assert queue_of(scans.request()) == QUEUE_BULK_OCR
    assert queue_of(lake.request()) == QUEUE_BULK


def test_a_plan_reads_back_as_the_run_that_it_is_of(scans: Scans) -> None:
    scans.write("1.png")
    plan = scans.plan(last_page=3).plan

    again = BulkPlan.model_validate_json(plan.model_dump_json())

    assert again == plan
    assert isinstance(again.request, BulkOcr)


def test_a_list_is_called_after_its_content() -> None:
    uri = listing_uri("s3://lake/out/", "ab" * 32)
    assert uri == "s3://lake/out/_batchmill/documents-abababababababab.jsonl"
    assert is_listing(uri)
    assert not is_listing("s3://lake/in/documents.jsonl")
