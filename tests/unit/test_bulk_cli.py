"""The command line of bulk runs where no broker is needed: requests, estimates, exit codes, and how a run is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from schemas.errors import ErrorCode, MessageError
from tasks.app import create_app, serves_classify
from tasks.bulk.coordinator import publish_plan
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import part_uri
from tasks.bulk.parts import part_names
from tasks.bulk.state import Phase, RunState, ShardState, Standing
from tasks.cli import main
from tasks.commands.bulk_classify import request_of
from tasks.commands.bulk_estimate import forecast
from tasks.commands.bulk_failures import ending
from tasks.commands.bulk_ocr import request_of as ocr_request_of
from tasks.commands.bulk_view import FAILURES_SHOWN, record, sentence, view_of
from tasks.commands.bulk_watch import Lines, Pace, follow
from tests.bulk_runs import BulkRun, new_run
from tests.services import ROOT
from worker.settings import load
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 300


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHMILL_MODEL", str(tiny_model))
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("BATCHMILL_RUNNERS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> BulkRun:
    return new_run(LocalStore(), str(tmp_path), tmp_path / "drafts")


@pytest.fixture
def inputs(tmp_path: Path) -> str:
    path = tmp_path / "in" / "tickets.parquet"
    path.parent.mkdir()
    columns = {"id": list(range(ROWS)), "body": [f"my card is lost {row}" for row in range(ROWS)]}
    pq.write_table(pa.table(columns), path)
    return str(path)


def bulk(*args: str) -> Result:
    return CliRunner().invoke(main, ["bulk", *args])


def plan(*args: str) -> dict[str, Any]:
    result = bulk("classify", "--output", "out", "--body", "body", "--plan", "--json", *args)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


# requests


def test_paths_become_absolute_and_keep_their_wildcards(tmp_path: Path) -> None:
    fields = {"inputs": ("a/../in/**/*.csv", "file:///data/x.csv", "s3://lake/*.pq"), "output": "out/", "text": "text"}

    request = request_of(fields | {"since_manifest": "old/manifest.json", "no_dedupe": True, "strict": False})

    assert request.inputs == [f"{tmp_path}/in/**/*.csv", "/data/x.csv", "s3://lake/*.pq"]
    assert (request.output, request.since_manifest) == (f"{tmp_path}/out", f"{tmp_path}/old/manifest.json")
    assert (request.dedupe, request.strict, "strict" in request.model_fields_set) == (False, False, False)


def test_nothing_is_taken_for_not_given_because_it_is_zero() -> None:
    fields = {"inputs": ("a.csv",), "output": "out", "text": "text", "threshold": 0.0, "max_rejection_rate": 0.0}

    request = request_of(fields)

    assert (request.threshold, request.max_rejection_rate) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(("--text", "a", "--body", "b"), "give either text", id="two kinds of text"),
        pytest.param((), "give either text", id="no text"),
        pytest.param(("--text", "a", "--top-k", "0"), "top_k", id="out of range"),
        pytest.param(("--text", "a", "--workers", "2"), "go with --plan", id="workers without a plan"),
        pytest.param(("--text", "a", "--plan", "--watch"), "--plan sends nothing", id="a plan is not watched"),
        pytest.param(("--text", "a", "--output", "gs://b/o"), "gs:// is not supported", id="a store of another kind"),
        pytest.param(("--text", "a", "--compression", "lz4"), "'lz4' is not one of", id="not a choice"),
    ],
)
def test_a_wrong_request_is_wrong_usage_and_is_not_sent(args: tuple[str, ...], said: str) -> None:
    refused = bulk("classify", "--input", "in.csv", "--output", "out", *args)

    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(("--uri", "a", "--content", "b"), "give either uri or content", id="two sources"),
        pytest.param(("--id", "a"), "id names a column", id="an id of no table"),
        pytest.param(("--first-page", "3", "--last-page", "2"), "last_page comes before", id="no page"),
        pytest.param(("--price-per-hour", "2"), "go with --plan", id="a price without a plan"),
        pytest.param(("--text", "a"), "No such option", id="an option of another run"),
    ],
)
def test_a_wrong_request_for_documents_is_wrong_usage_too(args: tuple[str, ...], said: str) -> None:
    refused = bulk("ocr", "--input", "scans", "--output", "out", *args)

    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output


def test_a_request_for_documents_has_absolute_paths_too(tmp_path: Path) -> None:
    fields = {"inputs": ("in/**/*.pdf", "s3://lake/scans/"), "output": "out/", "uri": None, "strict": False}

    request = ocr_request_of(fields)

    assert request.inputs == [f"{tmp_path}/in/**/*.pdf", "s3://lake/scans/"]
    assert (request.output, request.reads_tables) == (f"{tmp_path}/out", False)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.INVALID_MESSAGE, 2),
        (ErrorCode.STORE_FORBIDDEN, 3),
        (ErrorCode.STORE_UNAVAILABLE, 3),
        (ErrorCode.UNSUPPORTED_STORE, 3),
        (ErrorCode.TOO_MANY_REJECTED, 1),
        (ErrorCode.INPUT_CHANGED, 1),
        (ErrorCode.PLAN_MISSING, 1),
    ],
)
def test_the_code_of_a_failure_decides_the_exit_code(code: ErrorCode, exit_code: int) -> None:
    assert ending(MessageError(code, "because")).exit_code == exit_code


@pytest.mark.parametrize("command", ["classify", "ocr", "status", "resume", "cancel", "verify"])
def test_every_command_explains_itself(command: str) -> None:
    result = bulk(command, "--help")

    assert (result.exit_code, "--json" in result.stdout) == (0, True)


def test_no_other_command_loads_what_only_bulk_runs_need() -> None:
    script = (
        "import sys; from tasks.app import create_app; from worker.settings import load;"
        "import tasks.commands.worker, tasks.commands.queues, tasks.commands.classify;"
        "create_app(load(queues='classify'));"
        "sys.exit([name for name in ('pyarrow', 'boto3', 'botocore') if name in sys.modules] or 0)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("queues", "tasks"),
    [
        pytest.param("bulk", {"bulk.classify", "bulk.shard"}, id="labels"),
        pytest.param("bulk-ocr", {"bulk.ocr", "bulk.shard"}, id="documents"),
        pytest.param("ocr,bulk,bulk-ocr", {"bulk.classify", "bulk.ocr", "bulk.shard"}, id="both"),
        pytest.param("ocr", set(), id="neither"),
    ],
)
def test_a_worker_has_the_tasks_of_the_runs_whose_queues_it_serves(queues: str, tasks: set[str]) -> None:
    app = create_app(load(queues=queues))

    assert {name for name in app.tasks if name.startswith("bulk.")} == tasks
    assert serves_classify(app.settings) == ("bulk.classify" in tasks)


def test_whoever_looks_at_a_run_loads_no_model() -> None:
    script = "import sys, tasks.commands.bulk; sys.exit(bool({'onnxruntime', 'cv2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


# --plan


def test_a_plan_tells_files_columns_shards_time_and_cost_and_writes_nothing(inputs: str, tmp_path: Path) -> None:
    told = plan("--input", inputs, "--shard-rows", "100", "--workers", "2", "--price-per-hour", "3600")

    assert (told["files"], told["rows"], told["shards"], told["shards_done"]) == (1, ROWS, 3, 0)
    assert [column["name"] for column in told["columns"]][:3] == ["id", "body", "label"]
    assert told["rows_per_s"] > 0
    to_do = told["to_do"]
    assert to_do["wall_s"] == pytest.approx(200 / told["rows_per_s"], rel=0.01), "one worker gets two shards"
    assert to_do["cost"] == pytest.approx(2 * to_do["wall_s"])
    assert not (tmp_path / "out").exists()


def test_a_plan_is_a_table_for_people(inputs: str) -> None:
    shown = bulk("classify", "--input", inputs, "--output", "out", "--body", "body", "--plan", "--price-per-hour", "1")

    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [inputs, "parquet", str(ROWS)] in [row[:3] for row in rows]
    assert ["rows", str(ROWS)] in rows
    assert "cost" in {row[0] for row in rows}


def test_a_plan_that_stands_is_the_one_that_counts_and_its_parts_are_subtracted(inputs: str) -> None:
    fields = {"inputs": [inputs], "output": "out", "body": "body"}
    planned = forecast(load(), request_of(fields | {"shard_rows": 100}), 1, None).plan
    publish_plan(LocalStore(), planned)
    LocalStore().put_bytes(part_uri(planned.request.output, part_names(planned)[1]), b"a part")

    told = plan("--input", inputs, "--shard-rows", "70")

    assert (told["shards"], told["shards_done"], told["to_do"]["rows"]) == (3, 1, 200)


def test_a_plan_for_an_output_of_other_work_is_refused(run: BulkRun) -> None:
    refused = bulk("classify", "--input", "in/*/*.parquet", "--output", run.output, "--body", "body", "--plan")

    assert (refused.exit_code, "holds run run-1, of other work" in refused.stderr) == (1, True)


def test_a_plan_of_no_file_says_so() -> None:
    refused = bulk("classify", "--input", "in/*.parquet", "--output", "out", "--body", "body", "--plan")

    assert (refused.exit_code, "no_inputs" in refused.stderr) == (1, True)


def test_a_plan_without_a_model_is_an_unfit_environment(inputs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_MODEL", "nowhere")

    refused = bulk("classify", "--input", inputs, "--output", "out", "--body", "body", "--plan")

    assert (refused.exit_code, "nowhere" in refused.stderr) == (3, True)


# verify


def test_verify_needs_no_broker(run: BulkRun) -> None:
    run.finish_all(rejected=2)
    finalise(run.store, run.plan)

    sound = bulk("verify", run.output)
    run.store.delete(run.part(1))
    broken = bulk("verify", run.output)

    assert (sound.exit_code, sound.stdout) == (0, f"{run.output}: 3 parts, 120 rows, as the manifest says\n")
    assert (broken.exit_code, broken.stdout.startswith(f"{run.part(1)}: ")) == (1, True)


# watching


def state(run: BulkRun, done: int, *shards: ShardState) -> RunState:
    return RunState(run.plan, frozenset(range(done)), shards)


def shard(number: int, standing: Standing, error: str | None = None) -> ShardState:
    return ShardState(number, standing, f"run-1:{number}:0", error)


def test_watching_goes_on_while_a_shard_does_and_believes_no_stop_at_first_sight(run: BulkRun) -> None:
    going, stopped = state(run, 1, shard(2, Standing.WAITING)), state(run, 2, shard(2, Standing.LOST))
    looks = iter([going, stopped, going, stopped, stopped, going])
    slept: list[float] = []

    last = follow(lambda: next(looks), Lines(as_json=True), slept.append)

    assert (last, next(looks)) == (stopped, going)
    assert len(slept) == 4
    assert min(slept) >= 1.0


def test_the_pace_is_that_since_the_first_look(run: BulkRun) -> None:
    clock = iter([10.0, 14.0, 20.0])
    pace = Pace(lambda: next(clock))

    words = [pace.words(state(run, done)) for done in (1, 1, 2)]

    assert words[:2] == ["- rows/s, ETA -, 0 shards failed"] * 2
    assert words[2] == "4 rows/s, ETA 0:00:10, 0 shards failed"


def test_the_sentence_says_what_to_do(run: BulkRun) -> None:
    resume = f"`batchmill bulk resume {run.output}` sends what is missing"
    failed, refused = shard(2, Standing.FAILED, "input_changed: x"), shard(2, Standing.FAILED, "too_many_rejected: x")

    assert sentence(state(run, 2, failed)) == f"1 of 3 shards have failed; once mended, {resume}"
    assert "it was refused" in sentence(state(run, 3, refused))
    assert sentence(state(run, 2, shard(2, Standing.CANCELLED))) == f"the run was called off; {resume}"
    assert sentence(state(run, 2, shard(2, Standing.LOST))) == f"nothing of the run waits or runs; {resume}"
    assert sentence(state(run, 2, shard(2, Standing.RUNNING))) == "the run goes on"


def test_many_failures_are_all_in_the_record_and_the_first_in_the_table(run: BulkRun) -> None:
    failed = [shard(number, Standing.FAILED, "internal: x") for number in range(FAILURES_SHOWN + 5)]

    seen = state(run, 0, *failed)

    assert len(record(seen)["failures"]) == FAILURES_SHOWN + 5
    assert len(view_of(seen).grids[1].rows) == FAILURES_SHOWN
    assert seen.phase is Phase.FAILED


def test_a_wrong_usage_is_a_usage_error() -> None:
    assert isinstance(ending(MessageError(ErrorCode.UNKNOWN_FIELD, "x")), click.UsageError)
