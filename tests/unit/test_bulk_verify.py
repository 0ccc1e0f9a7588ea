"""Whatever is changed in a finished run is found, named and told from what only happened around it."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk_manifest import BulkManifest, Tally
from tasks.bulk.audit import Finding, Trouble
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import manifest_uri, part_uri, plan_uri, success_uri
from tasks.bulk.parts import part_names
from tasks.bulk.stores import Stores
from tasks.bulk.verify import Verified, verify
from tests.bulk_runs import PLANNED_AT, SHARD_ROWS, BulkRun, new_run
from worker.storage.errors import Unavailable
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from worker.storage.objects import ObjectInfo

REJECTED = 2
SHARDS = 3


@pytest.fixture
def run(tmp_path: Path) -> BulkRun:
    """A run that has ended."""
    run = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts", column_prefix="bm_", row_group_rows=16)
    run.finish_all(rejected=REJECTED)
    end(run)
    return run


def end(run: BulkRun) -> None:
    finalise(run.store, run.plan, now=lambda: PLANNED_AT + timedelta(minutes=1))


def verified(run: BulkRun) -> Verified:
    return verify(Stores(), run.output)


def troubles(run: BulkRun) -> list[tuple[Trouble, str]]:
    return [(problem.trouble, problem.uri) for problem in verified(run).problems]


def only_problem(run: BulkRun) -> Finding:
    (problem,) = verified(run).problems
    return problem


def change_manifest(run: BulkRun, **changes: object) -> None:
    document = BulkManifest.model_validate_json(run.store.get_bytes(manifest_uri(run.output)))
    run.store.put_bytes(manifest_uri(run.output), document.model_copy(update=changes).model_dump_json().encode())


def change_plan(run: BulkRun, **changes: object) -> None:
    changed = run.plan.model_copy(update=changes)
    run.store.put_bytes(plan_uri(run.output), changed.model_dump_json().encode())


def rewrite(run: BulkRun, uri: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a part or its rejects anew, and let the manifest have its new size and hash."""
    content = io.BytesIO()
    table = change(pq.read_table(io.BytesIO(run.store.get_bytes(uri))))
    pq.write_table(table, content, write_page_checksum=True)
    run.store.put_bytes(uri, content.getvalue())
    manifest = BulkManifest.model_validate_json(run.store.get_bytes(manifest_uri(run.output)))
    now = {"size_bytes": len(content.getvalue()), "sha256": run.store.sha256(uri)}
    for name in ("parts", "rejects"):
        files = [file.model_copy(update=now) if file.uri == uri else file for file in getattr(manifest, name)]
        change_manifest(run, **{name: files})


def with_column(name: str, change: Callable[[list[object]], list[object]]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        values = pa.array(change(table.column(name).to_pylist()), table.schema.field(name).type)
        return table.set_column(at, table.schema.field(name), values)

    return changed


def flip_bit(run: BulkRun, uri: str, at: int) -> None:
    content = bytearray(run.store.get_bytes(uri))
    content[at] ^= 1
    run.store.put_bytes(uri, bytes(content))


def test_a_run_as_it_was_written_is_sound(run: BulkRun) -> None:
    found = verified(run)

    assert (found.problems, found.notes) == ((), ())
    assert found.manifest is not None
    assert found.counted == found.manifest.totals
    assert found.counted.rows == SHARDS * SHARD_ROWS
    assert found.counted.rejected == SHARDS * REJECTED


def test_a_run_without_shards_is_sound(tmp_path: Path) -> None:
    run = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts", shards=0)
    end(run)
    assert verified(run).problems == ()


def test_a_run_that_has_not_ended_is_told(run: BulkRun) -> None:
    run.store.delete(manifest_uri(run.output))
    assert only_problem(run) == Finding(
        Trouble.MANIFEST, manifest_uri(run.output), "there is none: the run has not ended"
    )


def test_a_damaged_manifest_is_told(run: BulkRun) -> None:
    run.store.put_bytes(manifest_uri(run.output), run.store.get_bytes(manifest_uri(run.output))[:-20])
    assert only_problem(run).trouble is Trouble.MANIFEST


def test_a_missing_success_file_is_told(run: BulkRun) -> None:
    run.store.delete(success_uri(run.output))
    assert troubles(run) == [(Trouble.SUCCESS, success_uri(run.output))]


def test_a_missing_part_is_named_and_no_totals_are_doubted_for_it(run: BulkRun) -> None:
    run.store.delete(run.part(1))

    found = verified(run)

    assert [(problem.trouble, problem.uri) for problem in found.problems] == [(Trouble.MISSING, run.part(1))]
    assert found.counted.rows == 2 * SHARD_ROWS


def test_a_part_that_was_cut_short_is_named(run: BulkRun) -> None:
    run.store.put_bytes(run.part(2), run.store.get_bytes(run.part(2))[:-1])
    assert troubles(run) == [(Trouble.SIZE, run.part(2)), (Trouble.UNREADABLE, run.part(2))]


def test_a_bit_that_flips_in_a_page_is_found_by_hash_and_by_page_checksum(run: BulkRun) -> None:
    footer = pq.read_metadata(io.BytesIO(run.store.get_bytes(run.part(1))))
    column = footer.row_group(1).column(0)
    flip_bit(run, run.part(1), column.data_page_offset + column.total_compressed_size // 2)

    assert troubles(run) == [(Trouble.SHA256, run.part(1)), (Trouble.UNREADABLE, run.part(1))]


@pytest.mark.parametrize("eighth", range(8))
def test_a_bit_that_flips_anywhere_is_found(run: BulkRun, eighth: int) -> None:
    size_bytes = run.store.info(run.part(0)).size_bytes
    flip_bit(run, run.part(0), size_bytes * eighth // 8)
    assert (Trouble.SHA256, run.part(0)) in troubles(run)


def test_rows_that_are_not_as_many_as_the_manifest_has_are_told(run: BulkRun) -> None:
    rewrite(run, run.part(0), lambda table: table.slice(1))

    assert troubles(run) == [
        (Trouble.ROWS, run.part(0)),
        (Trouble.RECORD, run.part(0)),
        (Trouble.COUNTS, run.part(0)),
        (Trouble.REJECTS, run.rejects(0)),
        (Trouble.TOTALS, manifest_uri(run.output)),
    ]


def test_a_part_in_the_place_of_another_is_told_by_its_record(run: BulkRun) -> None:
    first, second = run.part(0), run.part(1)
    run.store.put_bytes(second, run.store.get_bytes(first))
    rewrite(run, second, lambda table: table)
    problem = only_problem(run)
    assert (problem.trouble, problem.uri, problem.text) == (Trouble.RECORD, second, "shard: 0 instead of 1")


def test_a_part_without_a_record_is_told(run: BulkRun) -> None:
    rewrite(run, run.part(0), lambda table: table.replace_schema_metadata(None))
    assert troubles(run) == [(Trouble.RECORD, run.part(0))]


def test_columns_of_another_type_or_order_are_told(run: BulkRun) -> None:
    rewrite(run, run.part(0), lambda table: table.rename_columns(["id", *table.schema.names[1:]]))
    problem = only_problem(run)
    assert (problem.trouble, problem.uri) == (Trouble.SCHEMA, run.part(0))
    assert problem.text.endswith("column 'id' of string instead of column 'ticket_id' of string")


def test_a_column_too_many_is_told(run: BulkRun) -> None:
    rewrite(run, run.part(0), lambda table: table.append_column("more", pa.nulls(table.num_rows)))
    assert only_problem(run).text.endswith("column 'more' of null instead of no more columns")


@pytest.mark.parametrize(
    ("column", "change", "wrong"),
    [
        pytest.param("bm_label", lambda values: [*values[:-1], "access"], "labels", id="label"),
        pytest.param("bm_score", lambda values: [*values[:-1], 0.01], "scores", id="score"),
        pytest.param("bm_error_code", lambda values: ["null_text", *values[1:]], "errors", id="error"),
        pytest.param("bm_truncated", lambda values: [True] * len(values), "truncated", id="truncated"),
        pytest.param("bm_truncated", lambda values: [None] * len(values), "truncated", id="not known"),
    ],
)
def test_rows_are_counted_again(
    run: BulkRun, column: str, change: Callable[[list[object]], list[object]], wrong: str
) -> None:
    rewrite(run, run.part(1), with_column(column, change))

    found = [problem for problem in verified(run).problems if problem.trouble is not Trouble.REJECTS]

    assert [(problem.trouble, problem.uri) for problem in found] == [
        (Trouble.COUNTS, run.part(1)),
        (Trouble.TOTALS, manifest_uri(run.output)),
    ]
    assert all(problem.text.endswith(f"see {wrong}") for problem in found)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        pytest.param("bm_label", lambda values: [*values[:-1], None], id="a score without a label"),
        pytest.param("bm_error_code", lambda values: [*values[:-1], "empty_text"], id="a label and an error"),
        pytest.param("bm_error_code", lambda values: ["of another program", *values[1:]], id="an unknown code"),
        pytest.param("bm_score", lambda values: [*values[:-1], 7.0], id="a score beyond 1"),
    ],
)
def test_rows_that_no_run_writes_are_told_and_not_quoted(
    run: BulkRun, column: str, change: Callable[[list[object]], list[object]]
) -> None:
    rewrite(run, run.part(1), with_column(column, change))
    problem = only_problem(run)
    assert (problem.trouble, problem.uri) == (Trouble.COUNTS, run.part(1))
    assert "another program" not in str(problem)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"label_shares": {"access": 1.0}}, "label_shares"),
        ({"rejection_rate": 0.5}, "rejection_rate"),
        ({"models": []}, "models"),
    ],
)
def test_a_manifest_that_does_not_add_up_is_told(run: BulkRun, changes: dict[str, object], wrong: str) -> None:
    change_manifest(run, **changes)
    problem = only_problem(run)
    assert (problem.trouble, problem.uri) == (Trouble.TOTALS, manifest_uri(run.output))
    assert problem.text.endswith(f"see {wrong}")


def test_totals_that_are_not_those_of_the_parts_are_told(run: BulkRun) -> None:
    manifest = verified(run).manifest
    assert manifest is not None
    counts = manifest.totals.model_dump() | {"tokens": 1}
    change_manifest(run, totals=Tally(**counts))
    assert only_problem(run).text.endswith("see tokens")


def test_rejects_that_are_gone_or_not_in_the_manifest_are_told(run: BulkRun) -> None:
    manifest = verified(run).manifest
    assert manifest is not None
    run.store.delete(run.rejects(0))
    change_manifest(run, rejects=[*manifest.rejects[:1], *manifest.rejects[2:]])

    assert troubles(run) == [(Trouble.MISSING, run.rejects(0)), (Trouble.REJECTS, run.rejects(1))]


def test_rejects_of_other_rows_or_of_no_part_are_told(run: BulkRun) -> None:
    manifest = verified(run).manifest
    assert manifest is not None
    rewrite(run, run.rejects(0), with_column("bm_error_code", lambda values: ["null_text"] * len(values)))
    manifest = verified(run).manifest
    assert manifest is not None
    foreign = manifest.rejects[0].model_copy(update={"uri": f"{run.output}/_rejects/x.rejects"})
    change_manifest(run, rejects=[*manifest.rejects, foreign])

    assert troubles(run) == [(Trouble.REJECTS, foreign.uri), (Trouble.REJECTS, run.rejects(0))]


def test_the_rejects_of_a_damaged_part_are_read_all_the_same(run: BulkRun) -> None:
    run.store.delete(run.part(0))
    flip_bit(run, run.rejects(0), 10)

    assert troubles(run)[:2] == [(Trouble.MISSING, run.part(0)), (Trouble.SHA256, run.rejects(0))]


def test_without_its_plan_a_run_cannot_be_judged(run: BulkRun) -> None:
    run.store.delete(plan_uri(run.output))
    assert troubles(run) == [(Trouble.PLAN, plan_uri(run.output))]


@pytest.mark.parametrize(
    "changes",
    [{"arrow_schema": None}, {"fingerprint": "0" * 64}],
    ids=["a plan without exact columns", "another plan"],
)
def test_a_plan_that_is_not_the_runs_is_told(run: BulkRun, changes: dict[str, object]) -> None:
    change_plan(run, **changes)
    assert troubles(run) == [(Trouble.PLAN, plan_uri(run.output))]


def test_a_manifest_that_says_otherwise_than_its_plan_is_told(run: BulkRun) -> None:
    change_plan(run, job_id="run-2")
    problem = only_problem(run)
    assert (problem.trouble, problem.uri) == (Trouble.PLAN, manifest_uri(run.output))
    assert problem.text.endswith("see job_id")


def test_a_manifest_that_leaves_out_a_part_is_told(run: BulkRun) -> None:
    manifest = verified(run).manifest
    assert manifest is not None
    twice = [manifest.parts[0], manifest.parts[0], manifest.parts[2]]
    change_manifest(run, parts=twice)
    assert only_problem(run).text == "its parts are not those that the plan cuts"


def test_a_run_that_was_copied_is_verified_where_it_was_written(run: BulkRun, tmp_path: Path) -> None:
    copy = f"{tmp_path}/copy"
    run.store.put_bytes(manifest_uri(copy), run.store.get_bytes(manifest_uri(run.output)))
    (problem,) = verify(Stores(), copy).problems
    assert problem.trouble is Trouble.PLAN
    assert plan_uri(run.output) in problem.text


def test_a_part_of_another_key_is_a_note(run: BulkRun) -> None:
    stray = part_uri(run.output, part_names(run.plan.model_copy(update={"fingerprint": "0" * 64}))[0])
    run.store.put_bytes(stray, b"")
    run.store.put_bytes(part_uri(run.output, "notes.txt"), b"of somebody")

    found = verified(run)

    assert found.problems == ()
    assert [(note.trouble, note.uri) for note in found.notes] == [(Trouble.STRAY, stray)]


@pytest.mark.parametrize("later", [None, b"of the next night"], ids=["gone", "replaced"])
def test_an_input_that_changed_since_is_a_note(run: BulkRun, later: bytes | None) -> None:
    uri = run.plan.inputs[0].uri
    if later is None:
        run.store.delete(uri)
    else:
        run.store.put_bytes(uri, later)

    found = verified(run)

    assert found.problems == ()
    assert [(note.trouble, note.uri) for note in found.notes] == [(Trouble.INPUT, uri)]


class Failing(LocalStore):
    """A store that fails at one object."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def info(self, uri: str) -> ObjectInfo:
        if uri == self.uri:
            raise Unavailable(uri, "the disk is gone")
        return super().info(uri)


def test_an_input_that_cannot_be_looked_at_is_a_note(run: BulkRun) -> None:
    uri = run.plan.inputs[0].uri
    found = verify(Stores(lambda _: Failing(uri)), run.output)
    assert found.problems == ()
    assert [str(note) for note in found.notes] == [f"{uri}: the input cannot be looked at: the disk is gone"]


def test_a_store_that_fails_is_no_verdict_on_a_part(run: BulkRun) -> None:
    with pytest.raises(Unavailable):
        verify(Stores(lambda _: Failing(run.part(0))), run.output)


class Replacing(LocalStore):
    """A store in which somebody replaces an object between the look at it and the reading."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def open(self, info: ObjectInfo, read_ahead_bytes: int = 1024) -> io.BufferedIOBase:
        if info.uri == self.uri:
            self.put_bytes(self.uri, self.get_bytes(self.uri))
        return super().open(info, read_ahead_bytes)


def test_a_part_that_becomes_another_while_it_is_read_is_told(run: BulkRun) -> None:
    (problem,) = verify(Stores(lambda _: Replacing(run.part(0))), run.output).problems
    assert problem == Finding(Trouble.SHA256, run.part(0), "it became another while it was read")


def test_verifying_changes_nothing(run: BulkRun) -> None:
    run.store.delete(success_uri(run.output))
    run.store.delete(run.part(0))
    before = {info.uri: run.store.get_bytes(info.uri) for info in run.store.list(f"{run.output}/**")}

    verified(run)

    assert {info.uri: run.store.get_bytes(info.uri) for info in run.store.list(f"{run.output}/**")} == before
    assert not run.store.exists(success_uri(run.output))
