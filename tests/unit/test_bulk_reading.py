"""Documents become rows of pages: in order, a row for each that could not be read, a few at a time."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from schemas.bulk_manifest import PageTally
from schemas.bulk_ocr import BulkOcr
from schemas.errors import ErrorCode, MessageError
from schemas.names import TASK_OCR_DOCUMENTS
from tasks.bulk.audit import Trouble
from tasks.bulk.coordinator import load_plan, publish_plan
from tasks.bulk.documents import documents
from tasks.bulk.finaliser import finalise
from tasks.bulk.layout import part_uri, plan_uri
from tasks.bulk.parts import part_names
from tasks.bulk.reading import ASSUMED_DOCUMENTS_PER_S, DOCUMENTS_AHEAD, DocumentReader
from tasks.bulk.scans import Planned, Speed, plan_scans
from tasks.bulk.shard import ShardRunner
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tasks.bulk.work import planned_model, work_of
from tasks.ocr.stages import CROPS, DOCUMENTS, PAGES
from tests.papers import INFO, Desk
from tests.services import wait_until
from worker.errors import Cancelled, Draining
from worker.lifecycle import Workload
from worker.slots import Slot
from worker.storage.errors import Unavailable
from worker.storage.labelling import Span
from worker.storage.rows import JsonlTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tasks.bulk.reading import ReadPages

AT: Final = datetime(2026, 1, 2, 1, 0, tzinfo=UTC)
PAPERS: Final = ["one two three/four", None, "torn/two !/three", "", "abc"]


def span(papers: Sequence[str | None], column: str = "file") -> Span:
    lines = "".join(json.dumps({"id": f"D-{row}", column: paper}) + "\n" for row, paper in enumerate(papers))
    table = JsonlTable(io.BytesIO(lines.encode()), "in.jsonl")
    return Span(table, 0, table.rows)


def asked(**fields: object) -> BulkOcr:
    source = {} if "uri" in fields else {"content": "file"}
    return BulkOcr.model_validate({"inputs": ["in.jsonl"], "output": "out", **source, **fields})


def slot(desk: Desk) -> Slot:
    return Slot(desk.engine, "shard", None, suspect=False)


def read(desk: Desk, papers: Sequence[str | None], **fields: object) -> ReadPages:
    column = "uri" if "uri" in fields else "file"
    return DocumentReader(slot(desk), desk.pipeline, asked(**fields)).read(span(papers, column))


def waits(desk: Desk, lane: str) -> bool:
    """Return whether anything waits for a lane."""
    level, _ = desk.engine._waiting._batchers[lane].urgency()  # noqa: SLF001 - the backlog is that of messages on credit
    return level < float("inf")


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.engine.stop(1.0)


def test_every_page_is_a_row_in_order_and_so_is_every_document_without_any(desk: Desk) -> None:
    pages = read(desk, PAPERS)

    rows = pages.rows.table().to_pylist()
    assert [(row["row"], row["page"], row["pages"], row["text"], row["error_code"]) for row in rows] == [
        (0, 1, 2, "o3 t3\nt5", None),
        (0, 2, 2, "f4", None),
        (1, None, None, None, "missing_document"),
        (2, 1, 3, None, "damaged_document"),
        (2, 2, 3, None, "inference_failed"),
        (2, 3, 3, "t5", None),
        (3, 1, 1, "", None),
        (4, 1, 1, "a3", None),
    ]
    assert pages.rows.owners == [0, 0, 1, 2, 2, 2, 3, 4]
    assert [row["confidence"] for row in rows] == [0.9, 0.9, None, None, None, 0.9, None, 0.9]
    assert [line["text"] for line in rows[0]["lines"]] == ["o3", "t3", "t5"]
    assert rows[0]["lines"][1]["box"] == [[10.0, 0.0], [19.0, 0.0], [19.0, 20.0], [10.0, 20.0]]
    assert (rows[0]["width"], rows[0]["height"], rows[0]["rotation"], rows[3]["lines"]) == (100, 60, 0, None)
    errors = {ErrorCode.DAMAGED_DOCUMENT: 1, ErrorCode.INFERENCE_FAILED: 1, ErrorCode.MISSING_DOCUMENT: 1}
    confidences = [0] * 18 + [4, 0]
    assert pages.tally() == PageTally(
        rows=8, documents=5, pages=5, blank=1, errors=errors, confidences=confidences, lines=6
    )


def test_only_the_pages_that_are_asked_for_are_read_and_a_shorter_document_to_its_end(desk: Desk) -> None:
    rows = read(desk, ["a/b/c/d", "a/b"], first_page=2, last_page=3).rows.table().to_pylist()

    assert [(row["row"], row["page"], row["pages"], row["error_code"]) for row in rows] == [
        (0, 2, 4, None),
        (0, 3, 4, None),
        (1, 2, 2, None),
    ]


def test_a_few_documents_are_open_at_a_time_however_many_there_are(desk: Desk) -> None:
    open_at_once = []
    began = ended = 0
    reader = DocumentReader(slot(desk), desk.pipeline, asked())
    stage: Any = desk.engine.lanes[DOCUMENTS].model
    act = stage._act  # noqa: SLF001 - the test's own stage

    def counted(request: object) -> object:
        nonlocal began
        began += 1
        open_at_once.append(began - ended)
        return act(request)

    stage._act = counted  # noqa: SLF001
    for asked_for, job in reader._ended(reader._first(span(["a/b"] * 40), 40)):  # noqa: SLF001 - what `read` goes through
        assert asked_for.row == ended
        assert job is not None
        ended += 1

    assert (began, ended) == (40, 40)
    assert max(open_at_once) <= DOCUMENTS_AHEAD + 2


def test_a_store_that_is_away_ends_the_shard_and_is_no_documents_error(desk: Desk) -> None:
    with pytest.raises(Unavailable, match="s3://away/x"):
        read(desk, ["s3://secret/x", "s3://away/x"], uri="uri")

    (row,) = read(desk, ["s3://secret/x"], uri="uri").rows.table().to_pylist()
    assert (row["uri"], row["error_code"]) == ("s3://secret/x", "forbidden_uri")


def test_a_shard_that_ends_early_leaves_no_documents_to_be_read_for_nobody(desk: Desk) -> None:
    pages: Any = desk.engine.lanes[PAGES].model
    act, has_ended = pages._act, threading.Event()  # noqa: SLF001 - the test's own stage
    pages._act = lambda page: has_ended.wait(20.0) and act(page)  # noqa: SLF001
    reader = DocumentReader(slot(desk), desk.pipeline, asked())
    ended = reader._ended(documents(span([None, *["a/b/c"] * 6]), asked()))  # noqa: SLF001 - what `read` goes through
    next(ended)
    wait_until(lambda: waits(desk, PAGES), what="pages of the next documents wait")
    assert (desk.engine.jobs(), desk.engine.backlog()) == (0, 0)  # they take no credit of messages

    ended.close()  # type: ignore[attr-defined] # a generator, as when its caller fails

    assert not waits(desk, PAGES)
    has_ended.set()


def test_a_worker_that_stops_and_a_run_that_is_called_off_end_the_shard(desk: Desk) -> None:
    desk.heard.cancel_all()
    with pytest.raises(Cancelled):
        read(desk, ["a"])
    desk.engine.stop(1.0)
    with pytest.raises(Draining):
        read(desk, ["a"])


def test_a_run_that_is_called_off_while_pages_and_lines_wait_ends_the_shard_and_not_the_worker(desk: Desk) -> None:
    pages: Any = desk.engine.lanes[PAGES].model
    act = pages._act  # noqa: SLF001 - the test's own stage

    def called_off(page: object) -> object:
        desk.heard.cancel_all()
        return act(page)

    pages._act = called_off  # noqa: SLF001

    with pytest.raises(Cancelled):
        read(desk, ["one two/three four/five"])
    wait_until(lambda: not waits(desk, PAGES) and not waits(desk, CROPS), what="nothing waits")
    assert all(thread.is_alive() for thread in desk.engine.threads)
    assert desk.heard.broken_by == []


def test_the_speed_is_that_of_whole_documents(desk: Desk) -> None:
    reader = DocumentReader(slot(desk), desk.pipeline, asked())

    short, long = reader.speed(span(["ab"] * 8)), reader.speed(span(["ab/" * 99 + "ab"] * 8))

    assert short.document_bytes == 2
    assert (short.document_pages, long.document_pages) == (1, 100)
    assert long.document_bytes == 299
    assert long.documents_per_s < short.documents_per_s
    assert reader.speed(span([None])) == Speed(ASSUMED_DOCUMENTS_PER_S, None)


@pytest.mark.parametrize(
    ("open_s", "page_s", "documents_per_s"),
    [
        pytest.param(0.4, 0.2, 5.0, id="the runners are the bottleneck, and the store is slow"),
        pytest.param(0.4, 0.01, 10.0, id="the store is the bottleneck"),
    ],
)
def test_the_speed_is_that_of_the_slower_of_reading_and_fetching_which_go_on_side_by_side(
    desk: Desk, open_s: float, page_s: float, documents_per_s: float
) -> None:
    lasting(desk, DOCUMENTS, open_s)
    lasting(desk, PAGES, page_s)
    reader = DocumentReader(slot(desk), desk.pipeline, asked())

    speed = reader.speed(span([""] * 8))

    assert documents_per_s * 0.6 < speed.documents_per_s <= documents_per_s


def lasting(desk: Desk, lane: str, seconds: float) -> None:
    """Let every row of a lane take so long."""
    stage: Any = desk.engine.lanes[lane].model
    act = stage._act  # noqa: SLF001 - the test's own stage
    stage._act = lambda row: threading.Event().wait(seconds) or act(row)  # noqa: SLF001


# whole runs, without a broker


class Folder:
    """A folder of documents, and runs over it."""

    def __init__(self, desk: Desk, root: Path) -> None:
        self.root = root
        self.stores = Stores()
        self.workload = Workload({}, {TASK_OCR_DOCUMENTS: desk.pipeline}, desk.engine.lanes)
        self.slot = slot(desk)

    def write(self, **papers: str) -> None:
        for name, paper in papers.items():
            path = self.root / "in" / f"{name}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(paper)

    def plan(self, output: str = "out", **fields: object) -> Planned:
        request = {"inputs": [str(self.root / "in")], "output": str(self.root / output), "shard_rows": 2, **fields}
        return plan_scans(
            self.stores,
            BulkOcr.model_validate(request),
            job_id="run-1",
            model=planned_model(INFO),
            measure=lambda _: Speed(1e9, None),
            now=lambda: AT,
        )

    def run(self, **fields: object) -> str:
        """Do a run from its plan to its manifest; return its output."""
        planned = self.plan(**fields)
        output = planned.plan.request.output
        publish_plan(self.stores.of(output), planned.plan, planned.listing)
        plan = load_plan(self.stores.of(output), plan_uri(output))
        for shard in range(len(plan.shards)):
            ShardRunner(self.stores, self.workload, self.slot, plan, shard).run()
        finalise(self.stores.of(output), plan, now=lambda: AT)
        return output


@pytest.fixture
def folder(desk: Desk, tmp_path: Path) -> Folder:
    return Folder(desk, tmp_path)


def test_a_run_over_a_folder_ends_with_a_manifest_that_is_true(folder: Folder) -> None:
    folder.write(a="one/two", b="torn", c="three four", d="", e="five")

    checked = verify(folder.stores, folder.run())

    assert (checked.problems, checked.notes) == ((), ())
    assert checked.manifest is not None
    assert checked.manifest.totals == checked.counted
    assert [part.rows for part in checked.manifest.parts] == [3, 2, 1]
    assert (checked.manifest.rejection_rate, checked.manifest.label_shares) == (1 / 6, {})
    assert pq.ParquetFile(checked.manifest.rejects[0].uri).read().to_pylist() == [
        {"file": str(folder.root / "in" / "b.txt"), "row": 1, "page": 1, "error_code": "damaged_document"}
    ]


def test_the_same_documents_give_the_same_bytes(folder: Folder) -> None:
    folder.write(a="one/two", b="torn", c="three")
    output = folder.run()
    plan = load_plan(folder.stores.of(output), plan_uri(output))
    uris = [part_uri(output, name) for name in part_names(plan)]
    before = [folder.stores.of(uri).sha256(uri) for uri in uris]
    for uri in uris:
        folder.stores.of(uri).delete(uri)

    for shard in reversed(range(len(uris))):
        ShardRunner(folder.stores, folder.workload, folder.slot, plan, shard).run()

    assert [folder.stores.of(uri).sha256(uri) for uri in uris] == before


def test_a_part_says_which_model_read_it(folder: Folder) -> None:
    folder.write(a="one")
    output = folder.run()
    (part,) = folder.root.glob("out/*.parquet")

    metadata = pq.ParquetFile(part).schema_arrow.metadata
    assert metadata[b"batchmill.model.name"] == b"ocr-test"
    assert json.loads(metadata[b"batchmill"])["tally"]["documents"] == 1
    assert output == str(folder.root / "out")


def test_a_part_of_which_a_page_was_changed_is_found(folder: Folder) -> None:
    folder.write(a="one/two", b="three")
    output = folder.run()
    (part,) = folder.root.glob("out/*.parquet")
    file = pq.ParquetFile(part)
    table = file.read()
    column = table.schema.get_field_index("error_code")
    changed = table.set_column(column, table.schema.field(column), [["damaged_document", None, None]])
    pq.write_table(changed.cast(file.schema_arrow), part)

    found = {problem.trouble: problem.text for problem in verify(folder.stores, output).problems}

    assert "a result and an error" in found[Trouble.COUNTS]
    assert found.keys() & {Trouble.SIZE, Trouble.SHA256}


def test_a_worker_that_reads_no_documents_refuses_the_shards_of_a_run_that_does(folder: Folder) -> None:
    folder.write(a="one")

    with pytest.raises(MessageError, match="unknown_model: this worker reads no documents"):
        work_of(Workload({}, {}, {}), folder.slot, folder.plan().plan)


def test_another_model_than_the_planned_one_makes_no_part(folder: Folder) -> None:
    folder.write(a="one")
    plan = folder.plan().plan
    plan = plan.model_copy(update={"model": plan.model.model_copy(update={"version": "2"})})

    with pytest.raises(MessageError, match="unknown_model: the run was planned for ocr-test 2"):
        ShardRunner(folder.stores, folder.workload, folder.slot, plan, 0).run()
