"""Of all plans of an output one stands, and whoever plans the same work goes by it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from schemas.bulk_examples import PLAN
from schemas.errors import ErrorCode, MessageError
from tasks.bulk.coordinator import load_plan, plan_run, publish_plan
from tasks.bulk.failures import is_transient
from tasks.bulk.layout import plan_uri
from tasks.bulk.planning import plan_key
from tasks.bulk.stores import Stores
from tests.lakes import Lake, texts
from worker.storage.errors import NotConditional, Unavailable
from worker.storage.local import LocalStore
from worker.storage.objects import Creation, ObjectInfo, prove_conditional

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


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
