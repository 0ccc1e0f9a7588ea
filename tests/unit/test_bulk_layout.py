"""Where a run keeps what: the same for every worker, and never read as an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.bulk_examples import PLAN
from tasks.bulk.layout import (
    differs_prefix,
    differs_uri,
    is_of_a_run,
    manifest_uri,
    normalised,
    part_uri,
    plan_uri,
    rejects_prefix,
    rejects_uri,
    success_uri,
)
from tasks.bulk.parts import part_names
from worker.storage.errors import BadLocation
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

OUT = "s3://lake/labels"
PART = "dt=2026-01-01/part-000003-1f0c9a52-b7d2e4f1.parquet"


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("s3://lake/labels///", OUT),
        ("S3://lake/labels", OUT),
        ("s3://lake/", "s3://lake"),
        ("/data/out/", "/data/out"),
        ("/data/./in/../out", "/data/out"),
        ("file:///data/my%20out/", "/data/my out"),
    ],
)
def test_an_output_is_one_name_however_it_is_spelt(uri: str, meant: str) -> None:
    assert normalised(uri) == normalised(meant) == meant


def test_a_relative_path_becomes_what_this_process_means_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalised("out/") == str(tmp_path / "out")


def test_a_kind_of_address_that_no_store_reads_is_refused() -> None:
    with pytest.raises(BadLocation, match="gs:// is not supported"):
        normalised("gs://lake/labels")


@pytest.mark.parametrize("output", [OUT, f"{OUT}/"])
def test_everything_is_below_the_output(output: str) -> None:
    assert plan_uri(output) == f"{OUT}/_batchmill/plan.json"
    assert manifest_uri(output) == f"{OUT}/manifest.json"
    assert success_uri(output) == f"{OUT}/_SUCCESS"
    assert part_uri(output, PART) == f"{OUT}/{PART}"
    assert rejects_uri(output, PART, "9f" * 32) == f"{rejects_prefix(output, PART)}{'9f' * 8}.rejects"
    assert rejects_prefix(output, PART) == f"{OUT}/_rejects/part-000003-1f0c9a52-b7d2e4f1-"
    assert differs_prefix(output) == f"{OUT}/_batchmill/differs/"
    assert differs_uri(output, 3, "1f0c9a52" * 8) == f"{OUT}/_batchmill/differs/000003-1f0c9a521f0c9a52"


@pytest.mark.parametrize("output", ["s3://lake/*", "/data/out-[1]", "/data/day?"])
def test_an_output_with_wildcards_is_refused(output: str) -> None:
    with pytest.raises(BadLocation, match="an output has no wildcards"):
        plan_uri(output)


def test_the_root_of_a_disk_has_one_slash() -> None:
    assert plan_uri("/") == "/_batchmill/plan.json"


def test_what_a_run_leaves_is_no_input_and_what_others_left_there_is() -> None:
    own = [
        plan_uri(OUT),
        manifest_uri(OUT),
        success_uri(OUT),
        rejects_uri(OUT, PART, "0" * 64),
        differs_uri(OUT, 0, "0" * 64),
    ]
    own += [part_uri(OUT, name) for name in part_names(PLAN)]
    others = ["a.parquet", "dt=2026-01-01/part-0.parquet", "day/manifest.json", "part-00003-abc.snappy.parquet"]

    assert all(is_of_a_run(uri, f"{OUT}/") for uri in own)
    assert not any(is_of_a_run(f"{OUT}/{name}", OUT) for name in others)
    assert not is_of_a_run(f"s3://lake/labels-2/{PART}", OUT)


def test_other_readers_of_the_output_find_the_parts_alone(tmp_path: Path) -> None:
    store, output = LocalStore(), str(tmp_path)
    parts = [part_uri(output, name) for name in part_names(PLAN)]
    for uri in (plan_uri(output), success_uri(output), rejects_uri(output, PART, "0" * 64), *parts):
        store.put_bytes(uri, b"x")

    assert [info.uri for info in store.list(f"{output}/**/*.parquet")] == parts
    assert [info.uri for info in store.list(output)] == parts
    store.put_bytes(differs_uri(output, 0, "0" * 64), b"")
    assert [info.uri for info in store.list(differs_prefix(output))] == [differs_uri(output, 0, "0" * 64)]
