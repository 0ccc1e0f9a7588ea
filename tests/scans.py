"""A folder of documents, and plans of runs that read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk_examples import PLAN
from schemas.bulk_ocr import BulkOcr
from schemas.errors import MessageError
from tasks.bulk.coordinator import publish_plan
from tasks.bulk.scans import Speed, plan_scans
from tasks.bulk.stores import Stores
from tests.lakes import AT
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan
    from tasks.bulk.scans import Planned
    from worker.storage.labelling import Span

OURS: Final = ["page", "pages", "width", "height", "rotation", "text", "confidence", "lines", "error_code"]


@dataclass
class Scans:
    """A folder of documents and tables, and plans of runs over it."""

    root: Path
    speed: Speed = field(default_factory=lambda: Speed(1e9, None))
    measured: list[list[str]] = field(default_factory=list)

    def write(self, *names: str, content: bytes = b"scan") -> list[str]:
        paths = [self.root / "in" / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return [str(path) for path in paths]

    def table(self, columns: dict[str, Any], name: str = "list.parquet", row_group_size: int = 1_000) -> str:
        path = self.root / name
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return str(path)

    def request(self, **fields: object) -> BulkOcr:
        request = {"inputs": [str(self.root / "in")], "output": str(self.root / "out"), **fields}
        return BulkOcr.model_validate(request)

    def plan(self, job_id: str = "run-1", **fields: object) -> Planned:
        def measure(span: Span) -> Speed:
            column = fields.get("uri") or fields.get("content") or "uri"
            texts = span.table.texts([str(column)], span.start, span.stop)
            self.measured.append([str(text) for batch in texts for text in batch[str(column)]])
            return self.speed

        return plan_scans(
            Stores(),
            self.request(**fields),
            job_id=job_id,
            model=PLAN.model,
            measure=measure,
            now=lambda: AT,
        )

    def publish(self, planned: Planned) -> BulkPlan:
        return publish_plan(LocalStore(), planned.plan, planned.listing)

    def refusal(self, **fields: object) -> MessageError:
        with pytest.raises(MessageError) as refused:
            self.plan(**fields)
        return refused.value


def cuts(plan: BulkPlan) -> list[tuple[int, int, int]]:
    return [(shard.file, shard.start, shard.stop) for shard in plan.shards]
