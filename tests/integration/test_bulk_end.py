"""The end of a bulk run on a real S3 server: what it costs, several at once, and what `verify` finds there."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tasks.bulk.audit import Trouble
from tasks.bulk.finaliser import LOOKS, Verdict, finalise, read_manifest
from tasks.bulk.layout import manifest_uri, success_uri
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tests.bulk_runs import PLANNED_AT, BulkRun, new_run
from tests.s3_proxy import Fault, S3Proxy
from tests.s3_servers import BUCKET, S3Server
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK: Final = Limits(connect_s=1.0, read_s=5.0, transfer_s=5.0, total_s=30.0)


@pytest.fixture
def proxy(seaweed: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(seaweed.port) as started:
        yield started


@pytest.fixture
def run(seaweed: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BulkRun:
    """A run behind the proxy."""
    for name, value in seaweed.environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    return new_run(S3Store(QUICK), f"s3://{BUCKET}/{uuid.uuid4().hex}", tmp_path)


def test_as_long_as_a_part_is_missing_an_end_costs_one_request(run: BulkRun, proxy: S3Proxy) -> None:
    run.finish(0)
    run.finish(2)
    before = len(proxy.seen)

    assert finalise(run.store, run.plan) == Verdict(missing=(1,))
    assert [method for method, _ in proxy.seen[before:]] == ["GET"]


def test_a_part_costs_two_requests_at_the_end_and_no_row_of_it_is_read(run: BulkRun, proxy: S3Proxy) -> None:
    run.finish_all()
    before = len(proxy.seen)

    manifest = finalise(run.store, run.plan).manifest

    assert manifest is not None
    assert [part.sha256 for part in manifest.parts] == [run.store.sha256(part.uri) for part in manifest.parts]
    listings = 2  # of the parts, and of the markers of those that differ
    asked = Counter(method for method, _ in proxy.seen[before : -len(manifest.parts)])
    assert asked == {"GET": listings + 3, "HEAD": 3, "PUT": 2}


def test_finalisers_at_once_agree_on_one_manifest(run: BulkRun) -> None:
    run.finish_all(rejected=2)
    barrier = threading.Barrier(2)

    def end(minutes: int) -> Verdict:
        barrier.wait()
        return finalise(run.store, run.plan, now=lambda: PLANNED_AT + timedelta(minutes=minutes))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(end, (1, 2))

    assert first == second == Verdict(manifest=read_manifest(run.store, run.output))
    assert run.store.exists(success_uri(run.output))


def test_a_finaliser_goes_on_through_a_store_that_throttles_and_breaks_off(run: BulkRun, proxy: S3Proxy) -> None:
    run.finish_all(rejected=2)
    proxy.share(Fault.THROTTLE, 0.2)
    proxy.inject("GET", Fault.CUT, times=2)
    proxy.inject("PUT", Fault.LOSE_ANSWER)

    verdict = finalise(run.store, run.plan)

    assert verdict.manifest == read_manifest(run.store, run.output)
    assert [file.uri for file in run.store.list(f"{run.output}/")][-1] == manifest_uri(run.output)
    assert run.store.exists(success_uri(run.output))


def test_a_part_of_which_a_bit_flips_on_the_way_is_looked_at_again(run: BulkRun, proxy: S3Proxy) -> None:
    run.finish_all()
    flips = iter(range(LOOKS - 1))
    proxy.share(Fault.FLIP_END, 1.0, of=lambda _, headers: "range" in headers and next(flips, None) is not None)

    assert finalise(run.store, run.plan).manifest == read_manifest(run.store, run.output)
    assert list(flips) == []


def test_a_run_on_s3_is_sound_until_a_bit_flips_that_the_store_does_not_tell(run: BulkRun, seaweed: S3Server) -> None:
    run.finish_all(rejected=2)
    finalise(run.store, run.plan)
    stores = Stores(lambda _: run.store)
    assert verify(stores, run.output).problems == ()
    content, sha256 = bytearray(run.store.get_bytes(run.part(1))), run.store.sha256(run.part(1))
    content[len(content) // 3] ^= 1
    client = seaweed.client()
    key = run.part(1).removeprefix(f"s3://{BUCKET}/")
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(content), Metadata={"sha256": sha256})
    client.close()

    problems = verify(stores, run.output).problems

    assert run.store.sha256(run.part(1)) == sha256
    assert [(problem.trouble, problem.uri) for problem in problems] == [
        (Trouble.SHA256, run.part(1)),
        (Trouble.UNREADABLE, run.part(1)),
    ]
