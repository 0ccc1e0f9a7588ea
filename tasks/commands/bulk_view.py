"""How a bulk run looks: tables for people, a record for programs, and a sentence on how it has ended.

To people a run that reads documents speaks of documents and pages; programs find the same fields of every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from schemas.bulk_manifest import PageTally
from schemas.bulk_ocr import BulkOcr
from tasks.bulk.layout import manifest_uri, normalised
from tasks.bulk.listing import lists_documents
from tasks.bulk.state import Phase, Standing
from tasks.commands.outcome import printable
from tasks.commands.view import Grid, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.bulk_manifest import Tally
    from schemas.bulk_plan import BulkRequest
    from tasks.bulk.state import RunState, ShardState

FAILURES_SHOWN: Final = 20

BAD: Final = (Standing.FAILED, Standing.DEAD)

_ROWS: Final = "rows"
_DOCUMENTS: Final = "documents"
_REJECTED: Final = "rows_rejected"


def record(state: RunState) -> dict[str, Any]:  # JSON
    """Return a run's state for programs."""
    manifest = state.manifest if state.is_complete else None
    return {
        "job_id": state.plan.job_id,
        "output": normalised(state.plan.request.output),
        "state": state.phase.value,
        "rows": state.plan.rows,
        "rows_done": state.rows_done,
        "rows_rejected": None if manifest is None else manifest.totals.rejected,
        "shards": len(state.plan.shards),
        "done": len(state.done),
        **{standing.value: len(state.of(standing)) for standing in Standing},
        "manifest": None if manifest is None else manifest_uri(state.plan.request.output),
        "failures": [
            {"shard": one.shard, "state": one.standing.value, "task_id": one.task_id, "error": one.error}
            for one in state.of(*BAD)
        ],
    }


def view_of(state: RunState) -> View:
    """Return a run's state as tables: the run, and the shards that failed."""
    seen = record(state)
    grids = [facts({name: value for name, value in seen.items() if name != "failures"}, state.plan.request)]
    if failed := state.of(*BAD):
        grids.append(Grid(("shard", "state", "task", "why"), [_row(one) for one in failed[:FAILURES_SHOWN]]))
    return View([seen], grids)


def several(count: int, noun: str) -> str:
    """Return so many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted(request: BulkRequest) -> str:
    """Return what a run counts: the rows of its inputs, or documents."""
    return _DOCUMENTS if isinstance(request, BulkOcr) else _ROWS


def facts(record: Mapping[str, object], request: BulkRequest) -> Grid:
    """Return a record of a run as two columns, which fit any terminal; what is not known is left out."""
    known = [(_spoken(name, request), str(value)) for name, value in record.items() if value is not None]
    return Grid(("what", "value"), known)


def sentence(state: RunState) -> str:
    """Return how a run has ended, and what to do now."""
    output = normalised(state.plan.request.output)
    resume = f"`batchmill bulk resume {output}` sends what is missing"
    match state.phase:
        case Phase.FINISHED if state.manifest is not None:
            return (
                f"finished: {_sum(state.manifest.totals)} in {several(len(state.manifest.parts), 'part')}, "
                f"{state.manifest.totals.rejected:,} rejected; {manifest_uri(output)}"
            )
        case Phase.FAILED if len(state.done) == len(state.plan.shards):
            return "the run has failed: all parts are there, but it was refused; see the reason, then resume or verify"
        case Phase.FAILED:
            return f"{len(state.of(*BAD)):,} of {len(state.plan.shards):,} shards have failed; once mended, {resume}"
        case Phase.CANCELLED:
            return f"the run was called off; {resume}"
        case Phase.STALLED:
            return f"nothing of the run waits or runs; {resume}"
    return "the run goes on"


def _spoken(name: str, request: BulkRequest) -> str:
    if isinstance(request, BulkOcr) and name == _REJECTED:
        return "rejected"  # pages, and documents without any
    if lists_documents(request):
        name = name.replace("files", _DOCUMENTS)
    return name.replace(_ROWS, counted(request)).replace("_", " ")


def _sum(totals: Tally | PageTally) -> str:
    if isinstance(totals, PageTally):
        return f"{several(totals.documents, 'document')}, {several(totals.pages, 'page')}"
    return several(totals.rows, "row")


def _row(one: ShardState) -> tuple[str, ...]:
    return str(one.shard), one.standing.value, one.task_id, printable(one.error or "-")
