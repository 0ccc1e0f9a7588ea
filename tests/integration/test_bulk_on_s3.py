"""A run is planned on a real S3 server: its inputs are pinned there, and of two coordinators one has its way."""

from __future__ import annotations

import io
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk import BulkClassify
from schemas.bulk_examples import PLAN
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.coordinator import load_plan, plan_run, publish_plan
from tasks.bulk.inputs import open_table
from tasks.bulk.layout import plan_uri
from tasks.bulk.planning import plan_key
from tasks.bulk.stores import Stores
from tests.s3_proxy import Fault, S3Proxy
from tests.s3_servers import BUCKET, S3Server
from worker.storage.errors import Changed
from worker.storage.local import LocalStore
from worker.storage.objects import scheme_of
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan
    from worker.storage.objects import ObjectStore

QUICK: Final = Limits(connect_s=1.0, read_s=2.0, transfer_s=2.0, total_s=8.0, attempts=2)


class Lake:
    """A prefix of the test's own in a bucket."""

    def __init__(self, bucket: str = BUCKET) -> None:
        self.prefix = f"s3://{bucket}/{uuid.uuid4().hex}"
        self.output = f"{self.prefix}/out"
        self.stores = Stores(store)

    def parquet(self, name: str, rows: int) -> str:
        content = io.BytesIO()
        pq.write_table(pa.table({"text": [f"ticket {row}" for row in range(rows)]}), content, row_group_size=40)
        return self.put(name, content.getvalue())

    def put(self, name: str, content: bytes) -> str:
        uri = f"{self.prefix}/{name}"
        self.stores.of(uri).put_bytes(uri, content)
        return uri

    def plan(self, job_id: str = "run-1", **fields: Any) -> BulkPlan:  # noqa: ANN401 - any of the request's fields
        request = {"inputs": [f"{self.prefix}/in/**"], "output": f"{self.output}/", "text": "text"} | fields
        return plan_run(
            self.stores,
            BulkClassify(**request),
            job_id=job_id,
            model=PLAN.model,
            limits=PLAN.limits,
            is_multi_label=False,
            measure=lambda table: float(table.rows),
        )

    def texts(self, plan: BulkPlan) -> list[object]:
        """Every text of the plan, read shard by shard as a worker reads them."""
        found: list[object] = []
        for shard in plan.shards:
            file = plan.inputs[shard.file]
            with open_table(self.stores.of(file.uri), file) as table:
                found += [text for batch in table.texts(["text"], shard.start, shard.stop) for text in batch["text"]]
        return found


def store(uri: str) -> ObjectStore:
    return S3Store(QUICK) if scheme_of(uri) == "s3" else LocalStore()


@pytest.fixture
def lake(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return lake_behind(seaweed, monkeypatch)


def lake_behind(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, endpoint: str | None = None, bucket: str = BUCKET
) -> Lake:
    for name, value in seaweed.environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return Lake(bucket)


def test_a_run_is_planned_and_its_rows_are_read_by_the_plan_alone(lake: Lake) -> None:
    first = lake.parquet("in/dt=1/a.parquet", 100)
    second = lake.put("in/dt=2/b.csv", b"text\nx\ny\n")
    plan = publish_plan(lake.stores.of(lake.output), lake.plan(shard_rows=30))
    assert plan.request.output == lake.output
    assert [(file.uri, file.rows, file.folder) for file in plan.inputs] == [(first, 100, "dt=1"), (second, 2, "dt=2")]

    loaded = load_plan(S3Store(QUICK), plan_uri(lake.output), plan_key(plan))
    assert loaded == plan
    assert lake.texts(loaded) == [*(f"ticket {row}" for row in range(100)), "x", "y"]


def test_what_the_run_leaves_is_not_among_the_inputs_of_the_next_plan(lake: Lake) -> None:
    lake.parquet("in/a.parquet", 3)
    whole = f"{lake.prefix}/**"
    plan = publish_plan(lake.stores.of(lake.output), lake.plan(inputs=[whole]))
    lake.parquet("out/part-000000-1f0c9a52-b7d2e4f1.parquet", 3)
    lake.put("out/manifest.json", b"{}")
    lake.put("out/_SUCCESS", b"")
    assert lake.plan(inputs=[whole]).fingerprint == plan.fingerprint


def test_a_run_may_read_from_s3_and_write_to_a_disk(lake: Lake, tmp_path: Path) -> None:
    lake.parquet("in/a.parquet", 3)
    output = str(tmp_path / "out")
    plan = publish_plan(lake.stores.of(output), lake.plan(output=output))
    assert load_plan(LocalStore(), plan_uri(output)) == plan
    assert plan.inputs[0].uri.startswith("s3://")


def test_an_input_that_is_replaced_after_the_plan_is_refused_by_its_reader(lake: Lake) -> None:
    uri = lake.parquet("in/a.parquet", 100)
    plan = lake.plan()
    lake.parquet("in/a.parquet", 101)
    with pytest.raises(Changed, match=uri):
        lake.texts(plan)
    assert lake.plan().fingerprint != plan.fingerprint


def test_an_input_in_a_versioned_bucket_stays_as_it_was_planned(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = seaweed.client()
    client.create_bucket(Bucket="planned-versions")
    client.put_bucket_versioning(Bucket="planned-versions", VersioningConfiguration={"Status": "Enabled"})
    client.close()
    lake = lake_behind(seaweed, monkeypatch, bucket="planned-versions")
    lake.parquet("in/a.parquet", 5)
    plan = lake.plan()
    lake.parquet("in/a.parquet", 6)
    assert plan.inputs[0].version
    assert len(lake.texts(plan)) == 5


def test_of_two_coordinators_at_once_one_plan_stands_and_both_go_by_it(lake: Lake) -> None:
    lake.parquet("in/a.parquet", 100)
    for round_ in range(5):
        output = f"{lake.output}-{round_}"
        plans = [lake.plan(f"run-{number}", output=output, shard_rows=number + 10) for number in range(2)]
        barrier = threading.Barrier(2)

        def publish(plan: BulkPlan, barrier: threading.Barrier = barrier) -> BulkPlan:
            barrier.wait()
            return publish_plan(S3Store(QUICK), plan)

        with ThreadPoolExecutor(2) as pool:
            returned = list(pool.map(publish, plans))
        assert returned[0] == returned[1] == load_plan(S3Store(QUICK), plan_uri(output))
        assert returned[0] in plans


def test_the_plan_of_a_publisher_whose_answer_was_lost_is_its_own(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Proxy(seaweed.port) as proxy:
        lake = lake_behind(seaweed, monkeypatch, proxy.endpoint)
        lake.parquet("in/a.parquet", 3)
        plan = lake.plan()

        class Losing(S3Store):
            def probe(self, prefix: str) -> None:
                super().probe(prefix)
                proxy.inject("PUT", Fault.LOSE_ANSWER)

        assert publish_plan(Losing(QUICK), plan) == plan
        assert proxy.count("PUT") == len(["input", "probe", "probe", "plan", "plan again"])


def test_a_fifth_of_all_requests_throttled_changes_no_plan(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Proxy(seaweed.port) as proxy:
        lake = lake_behind(seaweed, monkeypatch, proxy.endpoint)
        for number in range(8):
            lake.parquet(f"in/{number}.parquet", 3)
        plan = lake.plan()
        proxy.share(Fault.THROTTLE, 0.2)
        assert publish_plan(lake.stores.of(lake.output), lake.plan("run-2")).fingerprint == plan.fingerprint


def test_a_store_that_overwrites_gets_no_plan(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = seaweed.client()
    with S3Proxy(seaweed.port) as proxy:
        lake = lake_behind(seaweed, monkeypatch, proxy.endpoint)
        lake.parquet("in/a.parquet", 3)
        plan = lake.plan()
        below = f"{lake.output.removeprefix(f's3://{BUCKET}/')}/"

        def forget() -> None:
            for entry in client.list_objects_v2(Bucket=BUCKET, Prefix=below).get("Contents", ()):
                client.delete_object(Bucket=BUCKET, Key=entry["Key"])

        proxy.before_put = forget
        with pytest.raises(MessageError, match="If-None-Match") as refused:
            publish_plan(lake.stores.of(lake.output), plan)
    assert refused.value.code is ErrorCode.UNSUPPORTED_STORE
    assert client.list_objects_v2(Bucket=BUCKET, Prefix=below)["KeyCount"] == 0
    client.close()


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", ErrorCode.STORE_FORBIDDEN),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9", ErrorCode.STORE_UNAVAILABLE),
    ],
)
def test_a_store_that_refuses_or_is_not_there_is_told_by_its_code(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, code: ErrorCode
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(MessageError, match=lake.prefix) as refused:
        lake.plan()
    assert refused.value.code is code
    assert "wrong" not in str(refused.value)


def test_a_bucket_that_is_not_there_is_named(lake: Lake) -> None:
    with pytest.raises(MessageError, match=r"s3://no-such-bucket/in/.*no such bucket") as refused:
        lake.plan(inputs=["s3://no-such-bucket/in/*.parquet"])
    assert refused.value.code is ErrorCode.OBJECT_NOT_FOUND
