"""To people a run that reads documents speaks of documents and pages; to programs as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.bulk_examples import MANIFEST, OCR_REQUEST, PLAN
from schemas.bulk_manifest import PageTally
from schemas.errors import ErrorCode
from tasks.bulk.estimate import estimate
from tasks.bulk.state import RunState
from tasks.commands import bulk_estimate
from tasks.commands.bulk_estimate import Forecast
from tasks.commands.bulk_view import record, sentence, view_of
from tasks.commands.bulk_watch import Lines
from tests.scans import Scans

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan
    from tasks.commands.view import View

READING = PLAN.model_copy(update={"request": OCR_REQUEST})
TOTALS = PageTally(
    rows=9, documents=6, pages=6, blank=6, lines=0, errors={ErrorCode.DAMAGED_DOCUMENT: 2, ErrorCode.FORBIDDEN_URI: 1}
)


@pytest.fixture
def scans(tmp_path: Path) -> Scans:
    return Scans(tmp_path)


def told(view: View) -> dict[str, str]:
    """Return the last grid of a view, which is what is known of the run."""
    return {row[0]: row[1] for row in view.grids[-1].rows}


def finished(plan: BulkPlan, **manifest: object) -> RunState:
    done = frozenset(range(len(plan.shards)))
    return RunState(plan, done, manifest=MANIFEST.model_copy(update=manifest), is_complete=True)


def headers(view: View) -> list[Any]:
    return [tuple(grid.header) for grid in view.grids]


def test_the_forecast_of_a_folder_counts_documents_and_shows_no_list_that_is_not_there(scans: Scans) -> None:
    scans.write("a.pdf", "b.png", "c.tiff", content=b"x" * 100)
    plan = scans.plan().plan

    view = bulk_estimate.view_of(Forecast(plan, 0.0432, 1, estimate([3], 0.0432), 0, bulk_estimate.Scans(300, 14)))

    assert headers(view) == [("column", "type"), ("what", "value")]
    shown = told(view)
    assert (shown["documents"], shown["pages"], shown["bytes"]) == ("3", "about 14", "300")
    assert (shown["documents per s"], shown["documents to do"]) == ("0.0432", "3")
    assert not [name for name in shown if "row" in name or "file" in name]
    (program,) = view.records
    assert (program["files"], program["rows"], program["pages"], program["bytes"]) == (3, 3, 14, 300)
    assert program["inputs"] == []


def test_the_forecast_of_tables_of_documents_has_the_tables_and_their_documents(scans: Scans) -> None:
    uri = scans.table({"scan": ["s3://a/1", "s3://a/2"]})
    plan = scans.plan(inputs=[uri], uri="scan").plan

    view = bulk_estimate.view_of(Forecast(plan, None, 1, None, 0, bulk_estimate.Scans(0, None)))

    assert headers(view)[0] == ("file", "format", "documents", "bytes")
    shown = told(view)
    assert (shown["files"], shown["documents"], "pages" in shown) == ("1", "2", False)


def test_a_forecast_of_labels_speaks_of_rows() -> None:
    view = bulk_estimate.view_of(Forecast(PLAN, 123.456, 1, estimate([PLAN.rows], 123.456), 0))

    assert headers(view)[0] == ("file", "format", "rows", "bytes")
    shown = told(view)
    assert (shown["rows"], shown["rows per s"], shown["rows to do"]) == (str(PLAN.rows), "123.5", str(PLAN.rows))


@pytest.mark.parametrize(
    ("wall_s", "price", "time", "cost"), [(0.2, 1.0, "0:00:01", "below 0.01"), (5400, 1234, "1:30:00", "1,851.00")]
)
def test_a_forecast_tells_time_and_cost_as_people_write_them(wall_s: float, price: float, time: str, cost: str) -> None:
    rows = 1_000
    made = estimate([rows], rows / wall_s, 1, price)

    shown = told(bulk_estimate.view_of(Forecast(PLAN, rows / wall_s, 1, made, 0)))

    assert (shown["time"], shown["cost"]) == (time, cost)


def test_the_status_of_a_run_that_reads_speaks_of_documents() -> None:
    shown = told(view_of(finished(READING, totals=TOTALS)))

    assert (shown["documents"], shown["documents done"], shown["rejected"]) == (str(PLAN.rows), str(PLAN.rows), "3")
    assert not [name for name in shown if "row" in name]


def test_the_status_of_a_run_that_labels_speaks_of_rows() -> None:
    shown = told(view_of(finished(PLAN)))

    assert (shown["rows"], shown["rows done"]) == (str(PLAN.rows), str(PLAN.rows))
    assert shown["rows rejected"] == str(MANIFEST.totals.rejected)


def test_programs_find_the_same_fields_of_every_run() -> None:
    assert record(finished(PLAN)).keys() == record(finished(READING, totals=TOTALS)).keys()


def test_the_end_tells_documents_and_pages() -> None:
    assert sentence(finished(READING, totals=TOTALS)).startswith("finished: 6 documents, 6 pages in ")
    assert sentence(finished(PLAN)).startswith(f"finished: {MANIFEST.totals.rows:,} rows in ")


@pytest.mark.parametrize(("plan", "words"), [(READING, "documents"), (PLAN, "rows")])
def test_a_watched_run_counts_in_the_same_words(plan: BulkPlan, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Lines(as_json=False).show(RunState(plan, frozenset()))

    line = capsys.readouterr().err
    assert line.startswith(f"0 of {plan.rows:,} {words}, - {words}/s, ")
