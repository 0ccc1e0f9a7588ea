"""A bulk run under faults on a real S3 server, and what it must come to: the same as without them.

The fault-free run of an input is made once. A run under faults usually begins with its plan, so that its parts must be
the same bytes; how a worker plans depends on how fast it found itself, so that runs which plan for themselves are
compared row by row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from celery import Celery

from schemas.bulk_plan import BulkPlan
from schemas.names import QUEUE_BULK, TASK_BULK_CLASSIFY
from tasks.bulk.planning import plan_key
from tasks.bulk.stores import Stores
from tasks.bulk.verify import verify
from tests.faults.lake import Json, Lake, Row, key_of
from tests.faults.reader import Reader
from tests.faults.steps import Traps
from tests.services import wait_until
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.bulk_manifest import BulkManifest
    from tests.faults.trial import Trial

SCORE_TOLERANCE: Final = 0.0002  # of another padding, rounded to four digits
_TIMES: Final = {"job_id", "started_at", "finished_at", "plan"}


class Difference(NamedTuple):
    """Rows of two results that do not agree."""

    lost: int
    doubled: int
    wrong: int


@dataclass(frozen=True)
class Reference:
    """The fault-free run of a lake's input."""

    plan: BulkPlan
    manifest: Json
    result: list[Row]

    @classmethod
    def of(cls, lake: Lake, output: str) -> Reference:
        """Take a finished run as the reference."""
        plan = BulkPlan.model_validate_json(lake.content(f"{output}/_batchmill/plan.json"))
        return cls(plan, _comparable(lake.manifest(output), output), lake.result(output))


class BulkTrial:
    """Bulk runs in a trial. Leaving its context ends the reader.

    Args:
        trial: its server and its fleet.
        lake: holds the input and takes the outputs.
        reference: the fault-free run of that input; None while that is made.
    """

    def __init__(self, trial: Trial, lake: Lake, reference: Reference | None = None) -> None:
        self.trial = trial
        self.lake = lake
        self.reference = reference
        self.traps = Traps(trial.fleet.journal_path.with_name("traps"))
        self.reader = Reader(lake.server, f"{lake.prefix}/out/")
        self.outputs: list[str] = []
        self._app = Celery("producer", broker=trial.server.url, set_as_current=False)

    def __enter__(self) -> Self:
        self.reader.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        self._app.close()

    def make_reference(self) -> Reference:
        """Run without faults."""
        self.start(1)
        output = self.send(planned=False)
        wait_until(self.done, 120, "the fault-free run ends")
        assert not self.reader.violations, self.reader.violations[:5]
        return Reference.of(self.lake, output)

    def start(self, workers: int, **settings: object) -> None:
        """Start so many workers that bear being killed often: a, b, c …"""
        self.trial.fleet.start(*ascii_lowercase[:workers], **{"max_crashes": 100, **settings})

    def send(self, *, output: str = "", planned: bool = True, **request: object) -> str:
        """Ask for a run, by the reference's plan if it is `planned`; return its output."""
        output = output or self.lake.new_output()
        if planned:
            self.lake.put_plan(self.reference.plan, output)
        self.classify(output, **request)
        self.outputs.append(output)
        return output

    def classify(self, output: str, **request: object) -> str:
        """Send a `bulk.classify`; return its task id."""
        arguments = {**self.lake.request, "output": output, **request}
        sent: str = self._app.send_task(TASK_BULK_CLASSIFY, kwargs=arguments, queue=QUEUE_BULK).id
        return sent

    def push(self, task: str, task_id: str, **arguments: object) -> None:
        """Send a message of a known id."""
        self._app.send_task(task, kwargs=arguments, task_id=task_id, queue=QUEUE_BULK)

    def plan(self, output: str) -> BulkPlan:
        """Return the plan of a run; it has to be there."""
        return BulkPlan.model_validate_json(self.lake.content(f"{output}/_batchmill/plan.json"))

    def parts(self, output: str) -> int:
        """Return how many parts of an output the reader has seen."""
        return sum(key.startswith(key_of(output)) and key.endswith(".parquet") for key in [*self.reader.seen])

    def done(self, *outputs: str) -> bool:
        """Whether the reader has seen the end of these runs; of none given, of all."""
        return all(f"{key_of(output)}/_SUCCESS" in self.reader.seen for output in outputs or self.outputs)

    def end_of(self, task_id: str) -> Json | None:
        """Return the result of a task as its backend has it; None as long as there is none."""
        with self.trial.server.client() as client:
            content = client.get(keys.RESULT_PREFIX + task_id)
        end: Json | None = None if content is None else json.loads(content)
        return end

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Wait until no bulk message is left anywhere."""
        wait_until(self._is_idle, timeout_s, "the bulk queue is empty")

    def assert_same_as_without_faults(self, timeout_s: float = 60.0) -> None:
        """Wait for the end of every run, and fail unless each is what it would be without faults."""
        wait_until(self.done, timeout_s, "every run ends")
        self.wait_idle(timeout_s)
        self.reader.close()
        assert not self.reader.violations, self.reader.violations[:5]
        for output in self.outputs:
            self._assert_same(output)

    def _assert_same(self, output: str) -> None:
        result, figures = self.lake.result(output), self.trial.figures
        difference = compared(result, self.reference.result)
        figures.jobs += self.lake.rows
        figures.lost += difference.lost
        figures.doubled += difference.doubled
        assert difference == Difference(0, 0, 0)
        if plan_key(self.plan(output)) == plan_key(self.reference.plan):
            assert _comparable(self.lake.manifest(output), output) == self.reference.manifest
        found = verify(Stores(), output)
        assert not found.problems, found.problems[:3]
        assert not found.notes, found.notes[:3]

    def _is_idle(self) -> bool:
        with self.trial.server.client() as client:
            lists = keys.lists(QUEUE_BULK)
            inboxes = client.scan_iter(f"{keys.PREFIX}inbox:*")
            return not any([client.hlen(keys.unacked(QUEUE_BULK)), *map(client.llen, lists), *inboxes])


def compared(result: Sequence[Row], expected: Sequence[Row]) -> Difference:
    """Return how a result differs from the right one: rows that are not there, that are twice, and others."""
    ids, wanted = [row.id for row in result], [row.id for row in expected]
    lost = len(set(wanted) - set(ids))
    doubled = len(ids) - len(set(ids))
    if ids != wanted:
        return Difference(lost, doubled, 1)
    return Difference(lost, doubled, sum(not _agree(*rows) for rows in zip(result, expected, strict=True)))


def _agree(row: Row, expected: Row) -> bool:
    if row.score is None or expected.score is None:
        return row == expected
    return row._replace(score=None) == expected._replace(score=None) and (
        abs(row.score - expected.score) <= SCORE_TOLERANCE
    )


def _comparable(manifest: BulkManifest, output: str) -> Json:
    """Return all of a manifest that faults must not change."""
    document = manifest.model_dump_json(exclude=_TIMES).replace(output, "OUTPUT")
    comparable: Json = json.loads(document)
    return comparable
