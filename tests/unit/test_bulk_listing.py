"""Where a run's inputs are the documents, it lists and pins them once, and its plan and shards go by the list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from schemas.bulk_manifest import PageTally
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.coordinator import load_plan
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import is_listing, is_of_a_run, listing_uri, manifest_uri, plan_uri
from tasks.bulk.listing import list_documents, listed, listing_of, open_listing
from tasks.bulk.planning import plan_key
from tasks.bulk.stores import Stores
from tests.scans import OURS, Scans, cuts
from worker.storage.errors import Changed
from worker.storage.labelling import Span
from worker.storage.local import LocalStore
from worker.storage.rows import MARK_EVERY_ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan


@pytest.fixture
def scans(tmp_path: Path) -> Scans:
    return Scans(tmp_path)


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
    for content in (b"other", b"x" * file.size_bytes):
        LocalStore().put_bytes(file.uri, content)
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


def test_a_list_is_called_after_its_content() -> None:
    uri = listing_uri("s3://lake/out/", "ab" * 32)
    assert uri == "s3://lake/out/_batchmill/documents-abababababababab.jsonl"
    assert is_listing(uri)
    assert not is_listing("s3://lake/in/documents.jsonl")
