"""The promises of an object store, over files and two real S3 servers, and what a bad network may do to them."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from tests.s3_proxy import Fault, S3Proxy
from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, StoreServer
from tests.services import free_port
from tests.stores import QUICK, Place, s3_place
from worker.storage.errors import (
    BadLocation,
    Changed,
    Damaged,
    Forbidden,
    NotConditional,
    NotFound,
    OutOfSpace,
    StorageError,
    TooLarge,
    Unavailable,
    Unreachable,
)
from worker.storage.local import LocalStore
from worker.storage.objects import MAX_OBJECT_BYTES, Creation, Outcome, hashed, store_for
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOUND_S: Final = 20.0  # of a call with QUICK limits, on a busy machine
CONTENT: Final = bytes(range(256)) * 4096


@pytest.fixture
def s3(request: pytest.FixtureRequest) -> StoreServer:
    """SeaweedFS, or what the test's `on_both` says."""
    server: StoreServer = request.getfixturevalue(getattr(request, "param", "seaweed"))
    return server


on_both = pytest.mark.parametrize("s3", ["seaweed", "rgw"], indirect=True)


@pytest.fixture
def proxy(s3: StoreServer) -> Iterator[S3Proxy]:
    with S3Proxy(s3.port) as started:
        yield started


@pytest.fixture
def faulty(s3: StoreServer, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place on S3 behind the proxy."""
    return s3_place(s3, monkeypatch, proxy.endpoint)


def write(directory: Path, content: bytes, name: str = "part") -> tuple[Path, str]:
    path = directory / name
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def test_a_glob_means_what_it_does_elsewhere_sorted_and_without_hidden_names(place: Place) -> None:
    for name in ("b.parquet", "a.parquet", "a.csv", "_SUCCESS", ".x.parquet", "day=1/c.parquet", "_tmp/d.parquet"):
        place.put(name)
    place.put("_day=2/e.parquet")
    assert place.names("/*.parquet") == ["a.parquet", "b.parquet"]
    assert place.names("/**/*.parquet") == ["_day=2/e.parquet", "a.parquet", "b.parquet", "day=1/c.parquet"]
    assert place.names("/[ab].*") == ["a.csv", "a.parquet", "b.parquet"]
    assert place.names("/day=?/*") == ["day=1/c.parquet"]
    assert (
        place.names("")
        == place.names("/")
        == ["_day=2/e.parquet", "a.csv", "a.parquet", "b.parquet", "day=1/c.parquet"]
    )
    assert place.names("/_SUCCESS") == ["_SUCCESS"]
    assert place.names("/nothing/**") == []


def test_a_prefix_ends_at_a_slash(place: Place) -> None:
    place.put("tickets/a.parquet")
    place.put("tickets-of-last-year/a.parquet")
    assert place.names("/tickets") == ["tickets/a.parquet"]


def test_a_reader_seeks_and_reads_ranges(place: Place) -> None:
    info = place.store.info(place.put("object", CONTENT))
    assert (info.size_bytes, place.store.list(info.uri)) == (len(CONTENT), [info])
    with place.store.open(info, read_ahead_bytes=1000) as reader:
        assert reader.read(10) == CONTENT[:10]
        assert reader.seek(-5, os.SEEK_END) == len(CONTENT) - 5
        assert reader.read(100) == CONTENT[-5:]
        assert reader.read(1) == b""
        reader.seek(990)
        assert reader.read(700_000) == CONTENT[990:700_990]
        assert reader.tell() == 700_990
        into = bytearray(7)
        assert (reader.readinto(into), bytes(into)) == (7, CONTENT[700_990:700_997])
        assert reader.read() == CONTENT[700_997:]


def test_an_empty_object_is_read_as_nothing(place: Place) -> None:
    with place.store.open(place.store.info(place.put("empty", b""))) as reader:
        assert reader.read() == b""


def test_threads_may_share_a_reader(place: Place) -> None:
    with (
        place.store.open(place.store.info(place.put("object", CONTENT)), 4096) as reader,
        ThreadPoolExecutor(8) as pool,
    ):
        pieces = list(pool.map(lambda _: reader.read(1024), range(len(CONTENT) // 1024)))
    assert sum(map(len, pieces)) == len(CONTENT)
    assert set(pieces) == {CONTENT[:1024]}


@pytest.mark.parametrize("later", [b"other", b"of another length", None], ids=["rewritten", "longer", "deleted"])
def test_a_reader_refuses_another_object_than_the_listed_one(remote_place: Place, later: bytes | None) -> None:
    place = remote_place
    info = place.store.info(place.put("object", b"first"))
    if later is None:
        place.store.delete(info.uri)
    else:
        place.put("object", later)
    with place.store.open(info) as reader, pytest.raises(Changed, match=info.uri):
        reader.read(1)


@pytest.fixture
def seaweed_place(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    return s3_place(seaweed, monkeypatch)


def test_a_file_that_changed_since_it_was_listed_is_refused(tmp_path: Path) -> None:
    store, path = LocalStore(), tmp_path / "file"
    path.write_bytes(b"first")
    info = store.info(str(path))
    with store.open(info) as reader:
        path.write_bytes(b"and more")
        with pytest.raises(Changed, match=str(path)):
            reader.read(1)
    with pytest.raises(Changed):
        store.open(info)


@on_both
def test_a_reader_of_a_versioned_bucket_stays_with_its_version(
    s3: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3.client()
    client.create_bucket(Bucket="versioned")
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    client.close()
    store = s3_place(s3, monkeypatch).store
    store.put_bytes("s3://versioned/object", b"first")
    info = store.info("s3://versioned/object")
    store.put_bytes("s3://versioned/object", b"second")
    assert info.version
    with store.open(info) as reader:
        assert reader.read() == b"first"


def test_a_name_is_created_once_and_the_second_learns_what_stands(place: Place, tmp_path: Path) -> None:
    first, first_sha256 = write(tmp_path, CONTENT, "first")
    second, second_sha256 = write(tmp_path, b"another part", "second")
    uri = f"{place.prefix}/deep/below/part-0.parquet"
    assert place.store.create(uri, first, first_sha256) == Creation(Outcome.CREATED, first_sha256)
    assert place.store.create(uri, second, second_sha256) == Creation(Outcome.EXISTS, first_sha256)
    assert place.store.create(uri, first, first_sha256) == Creation(Outcome.EXISTS, first_sha256)
    assert place.store.get_bytes(uri) == CONTENT
    assert place.names("") == ["deep/below/part-0.parquet"]


def test_twenty_threads_create_one_name_and_one_wins(place: Place, tmp_path: Path) -> None:
    uri = f"{place.prefix}/contested"
    parts = [write(tmp_path, f"part of writer {number}".encode() * 1000, f"part{number}") for number in range(20)]
    barrier = threading.Barrier(20)

    def create(part: tuple[Path, str]) -> Creation:
        barrier.wait()
        return place.store.create(uri, *part)

    with ThreadPoolExecutor(20) as pool:
        creations = list(pool.map(create, parts))
    winners = [creation for creation in creations if creation.is_new]
    assert len(winners) == 1
    assert {creation.sha256 for creation in creations} == {winners[0].sha256}
    assert hashlib.sha256(place.store.get_bytes(uri)).hexdigest() == winners[0].sha256


def test_a_part_that_is_not_what_its_checksum_says_is_never_stored(place: Place, tmp_path: Path) -> None:
    path, _ = write(tmp_path, b"bytes")
    with pytest.raises(Damaged, match="SHA-256"):
        place.store.create(f"{place.prefix}/part", path, "0" * 64)
    assert place.names("") == []


def test_a_part_that_one_create_cannot_take_is_refused(place: Place, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as sparse:
        sparse.truncate(MAX_OBJECT_BYTES + 1)
    with pytest.raises(TooLarge, match="smaller parts"):
        place.store.create(f"{place.prefix}/part", tmp_path / "large", "0" * 64)


def test_small_documents_are_replaced_or_kept_as_asked(place: Place) -> None:
    uri = place.put("manifest.json", b"old")
    assert place.store.put_bytes(uri, b"new", only_new=True).outcome is Outcome.EXISTS
    assert place.store.get_bytes(uri) == b"old"
    assert place.store.put_bytes(uri, b"new").is_new
    assert place.store.get_bytes(uri) == b"new"
    assert place.store.exists(uri)
    place.store.delete(uri)
    place.store.delete(uri)
    assert not place.store.exists(uri)


def test_an_object_is_told_by_the_sha256_of_its_bytes(place: Place, tmp_path: Path) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    uri = f"{place.prefix}/part"
    place.store.create(uri, part, sha256)
    assert place.store.sha256(uri) == sha256
    assert place.store.sha256(place.put("empty", b"")) == hashlib.sha256(b"").hexdigest()


def test_what_the_writer_left_with_an_object_is_not_hashed_again(faulty: Place, proxy: S3Proxy, tmp_path: Path) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    faulty.store.create(f"{faulty.prefix}/part", part, sha256)
    assert faulty.store.sha256(f"{faulty.prefix}/part") == sha256
    assert [method for method, _ in proxy.seen] == ["PUT", "HEAD"]


@pytest.mark.parametrize("metadata", [{}, {"sha256": "of another kind"}], ids=["none", "no digest"])
def test_an_object_of_another_writer_is_hashed_from_its_bytes(
    seaweed: S3Server, seaweed_place: Place, metadata: dict[str, str]
) -> None:
    content = CONTENT * 9  # more than is read at once
    uri = f"{seaweed_place.prefix}/object"
    client = seaweed.client()
    client.put_object(Bucket=BUCKET, Key=uri.partition(f"{BUCKET}/")[2], Body=content, Metadata=metadata)
    client.close()
    assert seaweed_place.store.sha256(uri) == hashlib.sha256(content).hexdigest()
    info = seaweed_place.store.info(uri)
    assert hashed(seaweed_place.store, info) == hashlib.sha256(content).hexdigest()


def test_a_reader_of_bytes_that_change_gets_no_sha256(seaweed_place: Place) -> None:
    info = seaweed_place.store.info(seaweed_place.put("object", b"first"))
    seaweed_place.put("object", b"other")
    with pytest.raises(Changed, match=info.uri):
        hashed(seaweed_place.store, info)


def test_what_is_not_there_is_named(place: Place) -> None:
    uri = f"{place.prefix}/missing"
    for ask in (place.store.info, place.store.get_bytes, place.store.sha256):
        with pytest.raises(NotFound, match=uri):
            ask(uri)


def test_a_store_that_keeps_its_word_passes_the_probe_and_stays_clean(place: Place) -> None:
    place.store.probe(f"{place.prefix}/out/")
    assert place.store.list(f"{place.prefix}/**/.batchmill*") == []


@on_both
def test_a_store_that_overwrites_fails_the_probe(faulty: Place, proxy: S3Proxy, s3: StoreServer) -> None:
    client = s3.client()

    def forget() -> None:
        for entry in client.list_objects_v2(Bucket=BUCKET, Prefix=faulty.prefix.split("/")[3]).get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    proxy.before_put = forget
    with pytest.raises(NotConditional, match="If-None-Match"):
        faulty.store.probe(faulty.prefix)
    assert client.list_objects_v2(Bucket=BUCKET, Prefix=faulty.prefix.split("/")[3])["KeyCount"] == 0
    client.close()


@on_both
def test_boto3_4392_an_older_store_is_sent_no_checksum_that_it_does_not_know(
    faulty: Place, proxy: S3Proxy, tmp_path: Path
) -> None:
    def is_news(headers: object) -> bool:
        text = repr(headers).lower()
        return any(word in text for word in ("x-amz-checksum", "x-amz-sdk-checksum", "x-amz-trailer", "aws-chunked"))

    proxy.refuses = is_news
    part, sha256 = write(tmp_path, CONTENT)
    assert faulty.store.create(f"{faulty.prefix}/part", part, sha256).is_new
    faulty.store.put_bytes(f"{faulty.prefix}/manifest", b"{}")
    for info in faulty.store.list(faulty.prefix):
        with faulty.store.open(info) as reader:
            reader.read()
        faulty.store.delete(info.uri)
    puts = [headers for method, headers in proxy.seen if method == "PUT"]
    assert all("content-md5" in headers for headers in puts)
    assert not any("if-match" in headers for _, headers in proxy.seen)  # Ceph refuses a quoted ETag there


def test_a_fifth_of_all_requests_throttled_changes_nothing(faulty: Place, proxy: S3Proxy, tmp_path: Path) -> None:
    proxy.share(Fault.THROTTLE, 0.2)
    parts = [write(tmp_path, f"{number}".encode() * 50_000, f"part{number}") for number in range(8)]
    for number, (part, sha256) in enumerate(parts):
        assert faulty.store.create(f"{faulty.prefix}/part{number}", part, sha256).is_new
    for info, (part, _) in zip(faulty.store.list(f"{faulty.prefix}/part*"), parts, strict=True):
        with faulty.store.open(info) as reader:
            assert reader.read() == part.read_bytes()


@on_both
def test_aws_sdk_pandas_2987_a_create_that_is_told_to_slow_down_is_repeated(
    faulty: Place, proxy: S3Proxy, tmp_path: Path
) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    proxy.inject("PUT", Fault.THROTTLE, times=3)
    assert faulty.store.create(f"{faulty.prefix}/part", part, sha256).is_new


def test_a_store_that_always_throttles_is_given_up_in_time(faulty: Place, proxy: S3Proxy) -> None:
    proxy.share(Fault.THROTTLE, 1.0)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="503 SlowDown") as refused:
        faulty.store.get_bytes(f"{faulty.prefix}/object")
    assert time.monotonic() - began_s < BOUND_S
    assert "secret words" not in str(refused.value)


def test_a_body_that_breaks_off_is_continued_where_it_stopped(faulty: Place, proxy: S3Proxy) -> None:
    info = faulty.store.info(faulty.put("object", CONTENT))
    proxy.inject("GET", Fault.CUT, times=2)
    with faulty.store.open(info) as reader:
        assert reader.read() == CONTENT
    ranges = [headers["range"] for method, headers in proxy.seen if method == "GET"]
    assert ranges[0] == f"bytes=0-{len(CONTENT) - 1}"
    assert ranges[1] == f"bytes={len(CONTENT) // 2}-{len(CONTENT) - 1}"
    assert len(ranges) == 3


def test_a_listing_that_breaks_off_is_asked_for_again(faulty: Place, proxy: S3Proxy) -> None:
    faulty.put("a")
    faulty.put("b")
    proxy.inject("GET", Fault.CUT, times=2)
    assert faulty.names("/*") == ["a", "b"]


def test_a_listing_of_many_pages_is_complete(remote_place: Place) -> None:
    names = [f"{number:04}" for number in range(1001)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remote_place.put, names))
    assert remote_place.names("/*") == names


@pytest.mark.parametrize("step", ["read", "create"])
def test_a_server_that_is_killed_and_comes_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    with S3Server(tmp_path) as server:
        place = s3_place(server, monkeypatch)
        # It was reached once: how long others are tried to reach no longer counts.
        store = S3Store(Limits(connect_s=1.0, read_s=5.0, total_s=30.0, unreachable_s=0.0))
        info = store.info(place.put("object", CONTENT))
        server.kill()
        restart = threading.Timer(1.0, server.start)
        restart.start()
        try:
            if step == "read":
                with store.open(info) as reader:
                    assert reader.read() == CONTENT
            else:
                assert store.create(f"{place.prefix}/part", part, sha256).is_new
        finally:
            restart.join()  # or it would start a server that nobody ends


def test_a_server_that_is_not_there_is_told_in_time(seaweed_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="AWS_ENDPOINT_URL_S3"):
        seaweed_place.put("object")
    assert time.monotonic() - began_s < BOUND_S


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_server_that_nobody_ever_reached_is_given_up_sooner_where_that_is_asked_for(
    seaweed_place: Place, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{free_port()}")
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="AWS_ENDPOINT_URL_S3"):
        store_for(seaweed_place.prefix, unreachable_s=0.5).exists(f"{seaweed_place.prefix}/object")
    assert time.monotonic() - began_s < BOUND_S < Limits().total_s


def test_whoever_gives_out_credentials_and_says_nothing_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("of.a.pod")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        role = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader", "AWS_WEB_IDENTITY_TOKEN_FILE": str(token)}
        others = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_REGION": "eu-west-1"}
        for name, value in (role | others | {"AWS_ENDPOINT_URL_STS": url}).items():
            monkeypatch.setenv(name, value)
        began_s = time.monotonic()
        with pytest.raises(Unavailable):
            S3Store(QUICK).info("s3://bucket/object")
    assert time.monotonic() - began_s < BOUND_S


def test_a_document_that_breaks_off_is_read_again(faulty: Place, proxy: S3Proxy) -> None:
    uri = faulty.put("manifest", b"whole document")
    proxy.inject("GET", Fault.CUT)
    assert faulty.store.get_bytes(uri) == b"whole document"


def test_a_body_that_trickles_is_read_again_on_a_new_connection(faulty: Place, proxy: S3Proxy) -> None:
    info = faulty.store.info(faulty.put("object", CONTENT))
    proxy.inject("GET", Fault.DRIP)
    began_s = time.monotonic()
    with faulty.store.open(info) as reader:
        assert reader.read() == CONTENT
    assert time.monotonic() - began_s < BOUND_S


def test_a_store_that_always_trickles_is_given_up_in_time(faulty: Place, proxy: S3Proxy) -> None:
    info = faulty.store.info(faulty.put("object", CONTENT))
    proxy.share(Fault.DRIP, 1.0)
    began_s = time.monotonic()
    with faulty.store.open(info) as reader, pytest.raises(Unavailable, match="too slowly"):
        reader.read()
    assert time.monotonic() - began_s < BOUND_S


def test_a_body_that_is_taken_too_slowly_is_sent_again(faulty: Place, proxy: S3Proxy, tmp_path: Path) -> None:
    part, sha256 = write(tmp_path, CONTENT * 16)
    store = S3Store(Limits(read_s=5.0, transfer_s=1.0, total_s=6.0, slowest_bytes_per_s=1024**3))
    proxy.inject("PUT", Fault.SIP)
    began_s = time.monotonic()
    assert store.create(f"{faulty.prefix}/part", part, sha256).is_new
    assert time.monotonic() - began_s < BOUND_S


def test_a_store_that_says_nothing_is_given_up_in_time(faulty: Place, proxy: S3Proxy) -> None:
    proxy.share(Fault.STALL, 1.0)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="AWS_ENDPOINT_URL_S3"):
        faulty.put("object")
    assert time.monotonic() - began_s < BOUND_S


@on_both
def test_a_bit_that_flips_on_the_way_in_is_caught_and_sent_again(faulty: Place, proxy: S3Proxy, tmp_path: Path) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    proxy.inject("PUT", Fault.FLIP_REQUEST)
    assert faulty.store.create(f"{faulty.prefix}/part", part, sha256).is_new
    assert faulty.store.get_bytes(f"{faulty.prefix}/part") == CONTENT


def test_a_line_that_always_flips_bits_stores_nothing(
    faulty: Place, proxy: S3Proxy, seaweed_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
    proxy.share(Fault.FLIP_REQUEST, 1.0)
    with pytest.raises(Damaged, match="on their way"):
        faulty.store.create(f"{faulty.prefix}/part", part, sha256)
    proxy.share(Fault.FLIP_REQUEST, 0.0)
    assert not faulty.store.exists(f"{faulty.prefix}/part")
    assert seaweed_place.names("") == []


def test_a_bit_that_flips_on_the_way_out_is_caught_in_a_document(faulty: Place, proxy: S3Proxy) -> None:
    uri = faulty.put("manifest", b"whole document")
    proxy.inject("GET", Fault.FLIP_ANSWER)
    assert faulty.store.get_bytes(uri) == b"whole document"


@on_both
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_create_whose_answer_was_lost_knows_its_own_object(
    faulty: Place, proxy: S3Proxy, tmp_path: Path, times: int
) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    proxy.inject("PUT", Fault.LOSE_ANSWER, times=times)
    assert faulty.store.create(f"{faulty.prefix}/part", part, sha256) == Creation(Outcome.CREATED, sha256)
    assert proxy.count("PUT") == times + 1


@on_both
def test_a_create_whose_answer_was_lost_does_not_claim_the_object_of_another(
    faulty: Place, proxy: S3Proxy, tmp_path: Path
) -> None:
    other = hashlib.sha256(b"of another").hexdigest()
    uri = faulty.put("part", b"of another")
    part, sha256 = write(tmp_path, CONTENT)
    proxy.inject("PUT", Fault.LOSE_ANSWER)
    assert faulty.store.create(uri, part, sha256) == Creation(Outcome.EXISTS, other)


@on_both
def test_connections_are_used_again(faulty: Place, proxy: S3Proxy) -> None:
    info = faulty.store.info(faulty.put("object", CONTENT))
    with faulty.store.open(info, read_ahead_bytes=1) as reader:
        for _ in range(50):
            reader.read(1000)
    assert proxy.count("GET") == 50
    assert proxy.connections <= 2


def test_small_reads_that_follow_each_other_share_a_request(faulty: Place, proxy: S3Proxy) -> None:
    info = faulty.store.info(faulty.put("object", CONTENT))
    with faulty.store.open(info, read_ahead_bytes=100_000) as reader:
        assert b"".join(reader.read(1000) for _ in range(200)) == CONTENT[:200_000]
    assert proxy.count("GET") == 2


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_a_wrong_credential_is_told_without_quoting_it(
    remote_place: Place, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "wrong-credential")
    with pytest.raises(Forbidden) as refused:
        remote_place.put("object")
    assert remote_place.prefix in str(refused.value)
    assert not any(word in str(refused.value) for word in ("wrong-credential", ACCESS_KEY, SECRET_KEY))


def test_missing_credentials_and_a_missing_bucket_are_told_apart(
    remote_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound):
        remote_place.store.list("s3://no-such-bucket/a/**")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Forbidden, match="no usable credentials"):
        S3Store(QUICK).list("s3://any/**")


def test_a_child_after_a_fork_makes_its_own_client(seaweed: S3Server) -> None:
    code = f"""
import os
from worker.storage.s3 import S3Store
store = S3Store()
uri = "s3://{BUCKET}/{uuid.uuid4().hex}"
store.put_bytes(uri, b"of the parent")
child = os.fork()
if child == 0:
    os._exit(0 if all(store.get_bytes(uri) == b"of the parent" for _ in range(20)) else 1)
assert all(store.get_bytes(uri) == b"of the parent" for _ in range(20))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | seaweed.environment(), timeout=60, check=False
    )
    assert ended.returncode == 0


def test_a_full_disk_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, sha256 = write(tmp_path, CONTENT)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutOfSpace, match="free some space"):
        LocalStore().create(str(tmp_path / "out" / "part"), part, sha256)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_whose_answer_was_lost_is_known_as_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, sha256 = write(tmp_path, CONTENT)
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", repeated)
    creation = LocalStore().create(str(tmp_path / "out" / "part"), part, sha256)
    assert creation == Creation(Outcome.CREATED, sha256)


def test_a_missing_source_is_named(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-part"):
        place.store.create(f"{place.prefix}/part", tmp_path / "no-part", "0" * 64)


def test_a_directory_that_links_to_itself_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [info.uri for info in LocalStore().list(str(tmp_path))] == [str(tmp_path / "a.parquet")]


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "two words.csv").write_bytes(b"1")
    store = store_for(f"file://{tmp_path}")
    assert [info.size_bytes for info in store.list(f"file://{tmp_path}/two%20*.csv")] == [1]
    assert store.get_bytes(f"file://{tmp_path}/two%20words.csv") == b"1"


@pytest.mark.parametrize("uri", ["gs://bucket/key", "http://host/path", "s3://", "file://host"])
def test_what_is_no_location_is_refused_with_the_right_form(uri: str) -> None:
    with pytest.raises(BadLocation, match=r"s3://bucket/key|file:///"):
        store_for(uri).list(uri)


def test_every_error_names_its_object_and_is_one_of_ours() -> None:
    missing = (NotFound, Unavailable, Unreachable)
    for kind in (BadLocation, Changed, Damaged, Forbidden, NotConditional, OutOfSpace, TooLarge, *missing):
        assert issubclass(kind, StorageError)
        assert str(kind("s3://b/k", "remedy")) == "s3://b/k: remedy"
