"""A run ends once, when its last part is there, in a manifest that is a function of what is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode, MessageError
from tasks.bulk.finaliser import Verdict, finalise, read_manifest
from tasks.bulk.layout import manifest_uri, plan_uri, success_uri
from tasks.bulk.tally import merge
from tests.bulk_runs import MODEL, PLANNED_AT, SHARD_ROWS, BulkRun, new_run
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_manifest import PartRecord
    from worker.storage.objects import ObjectInfo

FINISHED_AT = PLANNED_AT + timedelta(minutes=10)


class CountingStore(LocalStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.listed: list[str] = []

    def list(self, uri: str) -> list[ObjectInfo]:
        self.listed.append(uri)
        return super().list(uri)

    def open(self, info: ObjectInfo, read_ahead_bytes: int = 1) -> object:
        self.opened.append(info.uri)
        return super().open(info, read_ahead_bytes)


@pytest.fixture
def run(tmp_path: Path) -> BulkRun:
    return new_run(LocalStore(), str(tmp_path), tmp_path / "drafts")


def end(run: BulkRun) -> Verdict:
    return finalise(run.store, run.plan, now=lambda: FINISHED_AT)


def is_ended(run: BulkRun) -> bool:
    return run.store.exists(manifest_uri(run.output)) or run.store.exists(success_uri(run.output))


def test_a_run_with_a_missing_part_goes_on_after_one_listing(tmp_path: Path) -> None:
    store = CountingStore()
    run = new_run(store, str(tmp_path), tmp_path / "drafts")
    run.finish(1)
    store.opened.clear()

    assert end(run) == Verdict(missing=(0, 2))
    assert (store.listed, store.opened) == ([f"{run.output}/"], [])
    assert not is_ended(run)


def test_the_manifest_holds_what_the_parts_say_and_what_they_are(run: BulkRun) -> None:
    run.finish(0, rejected=4)
    run.finish(1)
    run.finish(2, record=run.record(2, provider="CUDAExecutionProvider"))

    manifest = end(run).manifest

    assert manifest is not None
    assert manifest == read_manifest(run.store, run.output)
    assert (manifest.job_id, manifest.fingerprint, manifest.plan_key) == ("run-1", run.plan.fingerprint, run.key)
    assert (manifest.plan, manifest.inputs) == (plan_uri(run.output), run.plan.inputs)
    assert (manifest.started_at, manifest.finished_at) == (PLANNED_AT, FINISHED_AT)
    assert [part.uri for part in manifest.parts] == [run.part(shard) for shard in range(3)]
    for file in (*manifest.parts, *manifest.rejects):
        assert (file.size_bytes, file.sha256) == (run.store.info(file.uri).size_bytes, run.store.sha256(file.uri))
    assert [part.rows for part in manifest.parts] == [SHARD_ROWS] * 3
    assert [(file.uri, file.rows) for file in manifest.rejects] == [(run.rejects(0), 4)]
    assert [model.provider for model in manifest.models] == ["CPUExecutionProvider", "CUDAExecutionProvider"]
    assert (manifest.totals.rows, manifest.totals.errors) == (120, {ErrorCode.EMPTY_TEXT: 4})
    assert (manifest.totals.tokens, manifest.totals.repeated, manifest.totals.truncated) == (1500, 9, 3)
    assert manifest.label_shares == {"access": 0.5, "billing": 0.5}
    assert manifest.rejection_rate == pytest.approx(4 / 120)
    assert manifest.differing_parts == 0
    assert run.store.get_bytes(success_uri(run.output)) == b""


def test_a_second_end_changes_nothing_and_reads_no_part(tmp_path: Path) -> None:
    store = CountingStore()
    run = new_run(store, str(tmp_path), tmp_path / "drafts")
    run.finish_all()
    first = end(run)
    store.opened.clear()

    assert finalise(run.store, run.plan, now=lambda: FINISHED_AT + timedelta(days=1)) == first
    assert store.opened == []


def test_a_finaliser_that_died_before_success_is_completed_by_the_next(run: BulkRun) -> None:
    run.finish_all()
    first = end(run)
    run.store.delete(success_uri(run.output))

    assert end(run) == first
    assert run.store.exists(success_uri(run.output))


def test_many_finalisers_at_once_agree_on_one_manifest(run: BulkRun) -> None:
    run.finish_all(rejected=1)

    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda late: finalise(run.store, run.plan, now=lambda: at(late)), range(8)))

    assert {verdict.manifest.model_dump_json() for verdict in verdicts if verdict.manifest} == {
        read_manifest(run.store, run.output).model_dump_json()  # type: ignore[union-attr]
    }


def at(seconds: int) -> datetime:
    return FINISHED_AT + timedelta(seconds=seconds)


def test_a_run_without_shards_ends_at_once(tmp_path: Path) -> None:
    run = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts", shards=0, max_rejection_rate=0.0)

    manifest = end(run).manifest

    assert manifest is not None
    assert (manifest.parts, manifest.totals.rows, manifest.label_shares, manifest.models) == ([], 0, {}, [])
    assert run.store.exists(success_uri(run.output))


def test_a_clock_that_is_behind_the_planners_does_not_end_a_run_before_it_began(run: BulkRun) -> None:
    run.finish_all()
    manifest = finalise(run.store, run.plan, now=lambda: datetime(2025, 1, 1, tzinfo=UTC)).manifest
    assert manifest is not None
    assert manifest.finished_at == manifest.started_at


def test_a_run_over_the_ceiling_is_refused_each_time_and_leaves_nothing(tmp_path: Path) -> None:
    run = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts", max_rejection_rate=0.05)
    run.finish_all(rejected=3)

    for _ in range(2):
        with pytest.raises(MessageError, match=r"too_many_rejected: 9 of 120 rows have an error .empty_text 9"):
            end(run)
        assert not is_ended(run)


def test_parts_that_were_made_twice_with_other_bytes_are_counted_once_for_each_shard(run: BulkRun) -> None:
    run.finish_all()
    for shard, content in ((2, b"x"), (2, b"y"), (0, b"z")):
        run.mark_as_different(shard, content)

    manifest = end(run).manifest

    assert manifest is not None
    assert manifest.differing_parts == 2


def test_a_strict_run_with_a_differing_part_is_refused(tmp_path: Path) -> None:
    run = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts", strict=True, max_rejection_rate=0.0)
    run.finish_all(rejected=1)
    run.mark_as_different(1)

    with pytest.raises(MessageError, match="part_differs: 1 of 3 parts"):
        end(run)
    assert not is_ended(run)


def other_model(record: PartRecord) -> PartRecord:
    return record.model_copy(update={"model": record.model.model_copy(update={"sha256": "0" * 64})})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(lambda record: record.model_copy(update={"plan_key": "0" * 64}), "plan key", id="plan"),
        pytest.param(lambda record: record.model_copy(update={"shard": 2}), "shard: 2 instead of 1", id="shard"),
        pytest.param(
            other_model, f"model: tickets-en@1 fp32 0+ instead of tickets-en@1 fp32 {MODEL.sha256}", id="model"
        ),
        pytest.param(
            lambda record: record.model_copy(update={"tally": merge([])}),
            "rows by its own count: 0 instead of 40",
            id="rows",
        ),
    ],
)
def test_a_part_that_says_otherwise_than_the_plan_is_named(run: BulkRun, change: object, what: str) -> None:
    record = run.record(1)
    run.finish(0)
    run.finish(2)
    run.finish(1, record=change(record))  # type: ignore[operator]

    with pytest.raises(MessageError, match=f"output_in_use: {run.part(1)}: .*{what}"):
        end(run)
    assert not is_ended(run)


def test_a_part_that_is_none_is_named(run: BulkRun) -> None:
    run.finish(0)
    run.finish(2)
    run.store.put_bytes(run.part(1), b"PAR1 and no more")

    with pytest.raises(MessageError, match=f"output_in_use: {run.part(1)}: .*delete it, then resume"):
        end(run)


def test_a_parquet_file_of_another_writer_is_no_part(run: BulkRun) -> None:
    run.finish(0)
    run.finish(2)
    run.store.put_bytes(run.part(1), run.store.get_bytes(run.plan.inputs[0].uri))

    with pytest.raises(MessageError, match="it has no record that can be read"):
        end(run)


def test_rejects_that_are_gone_are_named_with_the_way_out(run: BulkRun) -> None:
    run.finish_all(rejected=1)
    run.store.delete(run.rejects(2))

    with pytest.raises(MessageError, match=f"object_not_found: {run.rejects(2)}: .*delete {run.part(2)} as well"):
        end(run)


@pytest.mark.parametrize("is_last", [False, True], ids=["parts missing", "all parts"])
def test_a_manifest_of_another_run_stands_and_is_told(run: BulkRun, tmp_path: Path, *, is_last: bool) -> None:
    other = new_run(run.store, f"{tmp_path}/other", tmp_path / "drafts", shards=2)
    other.finish_all()
    end(other)
    run.store.put_bytes(manifest_uri(run.output), run.store.get_bytes(manifest_uri(other.output)))
    if is_last:
        run.finish_all()

    with pytest.raises(MessageError, match=f"output_in_use: {manifest_uri(run.output)}: it is of another run"):
        end(run)
    assert not run.store.exists(success_uri(run.output))


def test_something_else_of_the_manifests_name_is_told(run: BulkRun) -> None:
    run.store.put_bytes(manifest_uri(run.output), b'{"of": "another program"}')

    with pytest.raises(MessageError, match=r"output_in_use: .*no manifest of a bulk run"):
        end(run)


def test_an_output_without_a_manifest_has_none(run: BulkRun) -> None:
    assert read_manifest(run.store, run.output) is None
