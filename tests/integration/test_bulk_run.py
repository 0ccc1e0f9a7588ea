"""A bulk run through a real worker: every row once and in order, each failure told, nothing half-done ever visible."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk_plan import BulkPlan
from tasks.bulk.planning import plan_key
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tests.lakes import Lake
from tests.services import wait_until
from tests.tiny_models import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from celery.result import AsyncResult

    from schemas.bulk_manifest import BulkManifest
    from tests.services import WorkerProcess

PLAIN: Final = [word for word in WORDS if word not in {"nan", "endless"}]
WAIT_S: Final = 30.0
CANARY: Final = "canaryofzanzibar"


def tickets(rows: int, offset: int = 0) -> list[str]:
    """Different texts of 1 to 20 words."""
    return [
        " ".join(PLAIN[(row * 7 + place * place + row // 20) % len(PLAIN)] for place in range(1 + row * 13 % 20))
        + f" {row}"
        for row in range(offset, offset + rows)
    ]


@dataclass
class Nightly:
    """A producer of bulk runs over a directory."""

    app: Celery
    lake: Lake

    def send(self, **fields: object) -> AsyncResult[Any]:
        request = {"inputs": [str(self.lake.root / "in")], "output": self.lake.output, "text": "text", **fields}
        return self.app.send_task("bulk.classify", kwargs=request, queue="bulk")

    def plan(self, **fields: object) -> dict[str, Any]:
        """Send a run and return what its plan came to."""
        answer: dict[str, Any] = self.send(**fields).get(timeout=WAIT_S)
        return answer

    def run(self, **fields: object) -> BulkManifest:
        """Send a run, wait for its end and return its manifest, which must be true."""
        answer = self.plan(**fields)
        output = Path(answer["output"])
        wait_until((output / "_SUCCESS").exists, WAIT_S, "the run ends well")
        checked = verify(Stores(), str(output))
        assert checked.problems == ()
        assert checked.manifest is not None
        assert checked.manifest.job_id == answer["job_id"]
        return checked.manifest

    def rows(self, manifest: BulkManifest) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for part in manifest.parts:
            found += pq.ParquetFile(part.uri).read().to_pylist()
        return found

    def shards_of(self, plan: dict[str, Any], job_id: str, *shards: int) -> None:
        """Publish a plan and send shards of it, as a coordinator does."""
        path = Path(plan["request"]["output"], "_batchmill", "plan.json")
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(plan))
        key = plan_key(BulkPlan.model_validate_json(path.read_bytes()))
        for shard in shards:
            kwargs = {"plan": str(path), "plan_key": key, "shard": shard}
            self.app.send_task("bulk.shard", kwargs=kwargs, queue="bulk", task_id=f"{job_id}:{shard}:0")

    def failure(self, answer: dict[str, Any], shard: int, attempt: int = 0) -> str:
        """Wait for a shard's failure and return its text."""
        ended = self.app.AsyncResult(f"{answer['job_id']}:{shard}:{attempt}")
        ended.get(timeout=WAIT_S, propagate=False)
        assert ended.state == "FAILURE"
        return str(ended.result)


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start_worker(queues="classify,bulk", runners=2)


@pytest.fixture
def nightly(app: Celery, tmp_path: Path) -> Nightly:
    return Nightly(app, Lake(tmp_path))


def test_every_row_comes_out_once_in_order_with_its_label_and_all_else_that_it_had(nightly: Nightly) -> None:
    texts = [*tickets(300), "", None, tickets(1)[0]]
    nested = [{"tags": ["a", str(row)], "n": row} for row in range(len(texts))]
    table = pa.table({"id": [f"T-{row}" for row in range(len(texts))], "text": texts, "extra": nested})
    nightly.lake.parquet("b.parquet", table.slice(200), 30)
    nightly.lake.parquet("a.parquet", table.slice(0, 200), 30)

    manifest = nightly.run(id="id", shard_rows=64)

    rows = nightly.rows(manifest)
    assert [{name: row[name] for name in table.schema.names} for row in rows] == table.to_pylist()
    assert [row["error_code"] for row in rows] == [None] * 300 + ["empty_text", "null_text", None]
    alone = nightly.app.send_task(
        "classify.tickets",
        kwargs={"tickets": [{"id": str(row), "text": text} for row, text in enumerate(texts[:300])]},
        queue="classify",
    ).get(timeout=WAIT_S)
    assert [row["label"] for row in rows[:300]] == [one["label"] for one in alone["results"]]
    assert [row["score"] for row in rows[:300]] == pytest.approx([one["score"] for one in alone["results"]], abs=0.001)
    assert len(manifest.parts) == 6
    assert (manifest.totals.rows, manifest.totals.rejected) == (303, 2)
    assert manifest.models[0].name == alone["model"]["name"]
    assert manifest.models[0].sha256 == alone["model"]["sha256"]


def test_the_rejects_name_file_row_and_error_and_hold_no_text(nightly: Nightly) -> None:
    uri = nightly.lake.parquet("a.parquet", pa.table({"id": [7, 8, 9], "text": ["my card", None, " "]}))

    (rejects,) = nightly.run(id="id", max_rejection_rate=1.0).rejects

    assert pq.ParquetFile(rejects.uri).read().to_pylist() == [
        {"id": 8, "file": uri, "row": 1, "error_code": "null_text"},
        {"id": 9, "file": uri, "row": 2, "error_code": "empty_text"},
    ]


def test_the_same_request_again_finds_all_done(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(100)}))
    manifest = nightly.run()
    before = {path: path.stat().st_mtime_ns for path in Path(nightly.lake.output).rglob("*")}

    again = nightly.plan()

    assert again["job_id"] == manifest.job_id
    assert {path: path.stat().st_mtime_ns for path in Path(nightly.lake.output).rglob("*")} == before


def test_two_who_send_the_same_at_once_get_one_run(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(400)}))
    answers = [sent.get(timeout=WAIT_S) for sent in [nightly.send(shard_rows=64) for _ in range(2)]]

    assert answers[0] == answers[1]
    manifest = nightly.run(shard_rows=64)
    assert manifest.job_id == answers[0]["job_id"]
    assert manifest.differing_parts == 0


def test_other_work_into_the_same_output_is_refused(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(10)}))
    nightly.run()

    with pytest.raises(Exception, match="output_in_use: "):
        nightly.plan(top_k=2)


def test_the_next_night_labels_only_what_is_new(nightly: Nightly, tmp_path: Path) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(50)}))
    nightly.run()
    nightly.lake.parquet("b.parquet", pa.table({"text": tickets(20, offset=50)}))
    second, third = str(tmp_path / "second"), str(tmp_path / "third")

    manifest = nightly.run(output=second, since_manifest=f"{nightly.lake.output}/manifest.json")
    nothing = nightly.run(output=third, since_manifest=f"{second}/manifest.json")

    assert [row["text"] for row in nightly.rows(manifest)] == tickets(20, offset=50)
    assert [Path(file.uri).name for file in manifest.carried] == ["a.parquet"]
    assert (nothing.parts, nothing.totals.rows, len(nothing.carried)) == ([], 0, 2)


def test_an_input_that_was_replaced_fails_its_shards_and_no_other(nightly: Nightly) -> None:
    for name in ("a.parquet", "b.parquet"):
        nightly.lake.parquet(name, pa.table({"text": tickets(20)}))
    nightly.run()
    done = Path(nightly.lake.output, "_batchmill", "plan.json")
    plan = json.loads(done.read_text())
    plan["inputs"][0]["etag"] = "what it was when somebody else planned"
    plan["request"]["output"] = str(nightly.lake.root / "other")

    nightly.shards_of(plan, "other", 0, 1)

    assert nightly.failure({"job_id": "other"}, 0).startswith("input_changed: ")
    assert nightly.app.AsyncResult("other:1:0").get(timeout=WAIT_S) == {"shard": 1}
    assert not (nightly.lake.root / "other" / "manifest.json").exists()


def test_too_many_rejects_fail_the_run_and_leave_no_manifest(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": [*tickets(3), None, None, None, None]}))

    answer = nightly.plan()

    assert "too_many_rejected: 4 of 7 rows have an error (null_text 4)" in nightly.failure(answer, 0)
    assert not (Path(nightly.lake.output) / "manifest.json").exists()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"text": "body"}, "unknown_column: ", id="no such column"),
        pytest.param({"inputs": ["/nowhere/*.parquet"]}, "no_inputs: ", id="no file"),
        pytest.param({"model": "gpt"}, "unknown_model: ", id="no such model"),
        pytest.param({"threshold": 0.5}, "invalid_message: threshold", id="option that does nothing"),
        pytest.param({"colour": "red"}, "unknown_field: colour", id="unknown field"),
        pytest.param({"column_prefix": "", "id": "label"}, "column_exists: ", id="column in the way"),
        pytest.param({"output": "s3://"}, "invalid_message: ", id="no output"),
        pytest.param({"output": "ftp://host/x"}, "invalid_message: ftp://host/x", id="foreign scheme"),
        pytest.param({"since_manifest": "/nowhere/manifest.json"}, "object_not_found: ", id="no such manifest"),
    ],
)
def test_a_run_that_cannot_be_done_as_asked_fails_at_once_by_its_code(
    nightly: Nightly, fields: dict[str, Any], expected: str
) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(3), "label": ["a"] * 3}))
    request = {"column_prefix": "bm_"} | fields

    with pytest.raises(Exception, match=f"^{expected}"):
        nightly.plan(**request)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_text_files_are_inputs_too_and_a_broken_line_is_its_own_error(nightly: Nightly, name: str) -> None:
    csv = b"id,text\n1,my card is broken\n2,too,many\n3,where is my parcel\n"
    jsonl = b'{"id": "1", "text": "my card is broken"}\nbroken\n{"id": "3", "text": "where is my parcel"}\n'
    nightly.lake.write(name, csv if name.endswith("csv") else jsonl)

    rows = nightly.rows(nightly.run(id="id"))

    assert [(row["id"], row["error_code"]) for row in rows] == [("1", None), (None, "unreadable_row"), ("3", None)]
    assert [row["label"] is None for row in rows] == [False, True, False]


def test_an_input_without_rows_gives_a_result_with_its_columns(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": pa.array([], pa.string())}))

    manifest = nightly.run()

    (part,) = manifest.parts
    assert pq.ParquetFile(part.uri).schema_arrow.names == ["text", "label", "score", "truncated", "error_code"]
    assert part.rows == 0


def test_partitions_are_kept(nightly: Nightly) -> None:
    for day in ("01", "02"):
        nightly.lake.parquet(f"dt=2026-01-{day}/export.parquet", pa.table({"text": tickets(5)}))

    manifest = nightly.run()

    assert [Path(part.uri).parent.name for part in manifest.parts] == ["dt=2026-01-01", "dt=2026-01-02"]


def test_the_text_of_a_row_is_in_no_log(nightly: Nightly, worker: WorkerProcess) -> None:
    texts = [f"{CANARY} my card", None, f"nan {CANARY}", f"{CANARY} " * 500]
    nightly.lake.parquet("a.parquet", pa.table({"text": texts, "other": [CANARY] * 4}))
    nightly.lake.write("b.csv", f"text,other\n{CANARY},{CANARY},{CANARY}\n".encode())

    nightly.run(max_rejection_rate=1.0)

    assert CANARY not in worker.lines


def test_a_shard_of_a_plan_that_is_gone_or_another_is_refused(nightly: Nightly) -> None:
    nightly.lake.parquet("a.parquet", pa.table({"text": tickets(3)}))
    nightly.run()
    plan = json.loads(Path(nightly.lake.output, "_batchmill", "plan.json").read_text())
    plan["request"]["output"] = str(nightly.lake.root / "other")
    nightly.shards_of(plan, "beyond", 7)
    assert nightly.failure({"job_id": "beyond"}, 7).startswith("plan_missing: ")

    plan = f"{nightly.lake.output}/_batchmill/plan.json"
    for index, uri in enumerate((plan, f"{nightly.lake.output}/plan.json")):
        kwargs = {"plan": uri, "plan_key": "0" * 64, "shard": 0}
        nightly.app.send_task("bulk.shard", kwargs=kwargs, queue="bulk", task_id=f"gone:{index}:0")

    assert nightly.failure({"job_id": "gone"}, 0).startswith("plan_missing: ")
    assert nightly.failure({"job_id": "gone"}, 1).startswith("plan_missing: ")
