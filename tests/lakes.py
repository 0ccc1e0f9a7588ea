"""Inputs on a disk, and plans of runs over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk import BulkClassify
from schemas.bulk_examples import PLAN
from schemas.errors import MessageError
from tasks.bulk.coordinator import plan_run
from tasks.bulk.stores import Stores
from worker.storage.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bulk_plan import BulkPlan
    from worker.storage.tables import Table

AT: Final = datetime(2026, 1, 2, 1, 0, tzinfo=UTC)


def texts(rows: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"text": [f"ticket {row}" for row in range(rows)], **columns})


@dataclass
class Lake:
    """A directory with inputs and an output, and what was measured there."""

    root: Path
    rows_per_s: float = 1e9
    measured: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return str(self.root / "out")

    def uri(self, name: str) -> str:
        return str(self.root / "in" / name)

    def parquet(self, name: str, table: pa.Table | None = None, row_group_size: int = 1000) -> str:
        path = self.root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(texts(3) if table is None else table, path, row_group_size=row_group_size)
        return str(path)

    def write(self, name: str, content: bytes) -> str:
        LocalStore().put_bytes(self.uri(name), content)
        return self.uri(name)

    def request(self, **fields: Any) -> BulkClassify:  # noqa: ANN401 - any of its fields
        return BulkClassify(**({"inputs": [str(self.root / "in")], "output": self.output, "text": "text"} | fields))

    def plan(self, job_id: str = "run-1", *, is_multi_label: bool = False, **fields: Any) -> BulkPlan:  # noqa: ANN401 - as above
        def measure(table: Table) -> float:
            self.measured.append(table.name)
            assert sum(len(batch["text"]) for batch in table.texts(["text"], 0, table.rows)) == table.rows > 0
            return self.rows_per_s

        return plan_run(
            Stores(),
            self.request(**fields),
            job_id=job_id,
            model=PLAN.model,
            limits=PLAN.limits,
            is_multi_label=is_multi_label,
            measure=measure,
            now=lambda: AT,
        )

    def refusal(self, **fields: Any) -> MessageError:  # noqa: ANN401 - as above
        with pytest.raises(MessageError) as refused:
            self.plan(**fields)
        return refused.value
