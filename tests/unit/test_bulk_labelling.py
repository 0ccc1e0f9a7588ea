"""Rows become result columns: as if each had been sent alone, repeated texts once, errors where they belong."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.bulk import BulkClassify
from schemas.bulk_plan import BatchLimits
from schemas.errors import ErrorCode
from schemas.names import TASK_CLASSIFY
from tasks.app import load_workload
from tasks.bulk.labelling import ASSUMED_ROWS_PER_S, Labelled, Labeller
from tasks.bulk.work import lane_of
from tasks.offline import classify_offline
from tests.echo import Heard
from tests.tiny_models import WORDS, write_tiny_model
from worker.errors import Cancelled, Draining
from worker.lifecycle import build_engine
from worker.settings import load
from worker.slots import Slot
from worker.storage.labelling import Span
from worker.storage.parquet import ParquetTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from worker.engine import Engine

PLAIN: Final = [word for word in WORDS if word not in {"nan", "endless"}]
LIMITS: Final = BatchLimits(max_batch_size=8, max_batch_tokens=128, call_cost_tokens=8.0, planning_window=32)


def texts(count: int) -> list[str]:
    """Different texts of 1 to 20 words."""
    return [
        " ".join(PLAIN[(row * 7 + place * place + row // 20) % len(PLAIN)] for place in range(1 + row * 13 % 20))
        + f" {row}"
        for row in range(count)
    ]


class Bench:
    """An engine over a model, and a labeller of tables that are on a disk."""

    def __init__(self, model: Path, directory: Path) -> None:
        self.settings = load(model=str(model), runners=2)
        self.workload = load_workload(self.settings)
        self.heard = Heard()
        self.engine: Engine = build_engine(self.workload, self.heard, self.settings)
        self.engine.start()
        self.directory = directory
        self._files = ExitStack()

    def close(self) -> None:
        self.engine.stop(1.0)
        self._files.close()

    def span(self, columns: dict[str, Any], row_group_size: int = 50) -> Span:
        path = self.directory / "in.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        table = ParquetTable(self._files.enter_context(path.open("rb")), "in.parquet")
        return Span(table, 0, table.rows)

    def labeller(self, limits: BatchLimits = LIMITS, **fields: object) -> Labeller:
        named = {"text": "text"} if not fields.keys() & {"subject", "body"} else {}
        request = BulkClassify.model_validate({"inputs": ["in"], "output": "out", **named, **fields})
        slot = Slot(self.engine, "shard", None, suspect=False)
        pipeline: Any = self.workload.pipelines[TASK_CLASSIFY]
        return Labeller(slot, pipeline, lane_of(self.workload, None), request, limits)

    def label(self, rows: Sequence[str | None], limits: BatchLimits = LIMITS, **fields: object) -> Labelled:
        return self.labeller(limits, **fields).label(self.span({"text": pa.array(rows, pa.string())}))


@pytest.fixture
def bench(tiny_model: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tiny_model, tmp_path)
    yield made
    made.close()


def test_rows_are_labelled_in_order_as_if_each_were_a_ticket_of_its_own(bench: Bench) -> None:
    rows = texts(200)
    alone = list(classify_offline(bench.settings, ({"id": str(row), "text": text} for row, text in enumerate(rows))))

    labelled = bench.label(rows)

    assert labelled.labels == [one["label"] for one in alone]
    assert labelled.scores == pytest.approx([one["score"] for one in alone], abs=0.001)
    assert len(set(labelled.labels)) > 1
    assert all(score == round(score, 4) for score in labelled.scores if score is not None)
    assert labelled.tokens == sum(one["tokens"] for one in alone)
    assert labelled.tally().labelled == 200


@pytest.mark.parametrize("window", [1, 7, 32, 1024])
def test_the_window_changes_no_label(bench: Bench, window: int) -> None:
    rows = texts(60)
    limits = LIMITS.model_copy(update={"planning_window": window})

    assert bench.label(rows, limits).labels == bench.label(rows).labels


def test_a_text_that_comes_several_times_is_run_once(bench: Bench) -> None:
    rows = ["my card is broken", "refund please", "my card is broken"] * 40
    before = bench.engine.stats.rows

    labelled = bench.label(rows)

    assert bench.engine.stats.rows - before == 2
    assert labelled.labels == labelled.labels[:3] * 40
    assert labelled.scores == labelled.scores[:3] * 40
    tally = labelled.tally()
    assert (tally.labelled, tally.repeated) == (120, 118)


def test_without_dedupe_every_row_is_run(bench: Bench) -> None:
    before = bench.engine.stats.rows

    labelled = bench.label(["my card is broken"] * 70, dedupe=False)

    assert bench.engine.stats.rows - before == 70
    assert labelled.tally().repeated == 0


def test_a_row_that_cannot_be_labelled_says_why_and_its_neighbours_stay(bench: Bench) -> None:
    rows = ["my card", None, "", " \t", "nan card", "my card"]

    labelled = bench.label(rows)

    assert labelled.errors == [
        None,
        ErrorCode.NULL_TEXT,
        ErrorCode.EMPTY_TEXT,
        ErrorCode.EMPTY_TEXT,
        ErrorCode.MODEL_OUTPUT_NOT_FINITE,
        None,
    ]
    assert [label is None for label in labelled.labels] == [False, True, True, True, True, False]
    assert labelled.tally().errors == {
        ErrorCode.EMPTY_TEXT: 2,
        ErrorCode.MODEL_OUTPUT_NOT_FINITE: 1,
        ErrorCode.NULL_TEXT: 1,
    }


def test_a_repeated_text_that_fails_fails_every_time(bench: Bench) -> None:
    assert bench.label(["nan card"] * 3).errors == [ErrorCode.MODEL_OUTPUT_NOT_FINITE] * 3


def test_a_span_without_a_readable_row_and_one_without_rows_end_too(bench: Bench) -> None:
    assert bench.label([None] * 40).tally().rejected == 40
    assert bench.label([]).tally().rows == 0


def test_bytes_that_are_no_text_are_that_rows_error(bench: Bench) -> None:
    span = bench.span({"text": pa.array([b"my card", b"\xff\xfe"], pa.binary())})

    assert bench.labeller().label(span).errors == [None, ErrorCode.INVALID_UNICODE]


@pytest.mark.parametrize(
    ("subject", "body", "expected"),
    [
        pytest.param("card", "is broken", "card\n\nis broken", id="both"),
        pytest.param(None, "is broken", "is broken", id="no subject"),
        pytest.param("card", None, "card", id="no body"),
        pytest.param(" ", "is broken", "is broken", id="blank subject"),
    ],
)
def test_subject_and_body_are_one_text_and_a_null_is_no_loss_beside_the_other(
    bench: Bench, subject: str | None, body: str | None, expected: str
) -> None:
    columns = {"s": pa.array([subject, None], pa.string()), "b": pa.array([body, None], pa.string())}

    labelled = bench.labeller(subject="s", body="b").label(bench.span(columns))
    whole = bench.label([expected])

    assert (labelled.labels[0], labelled.scores[0]) == (whole.labels[0], whole.scores[0])
    assert labelled.errors == [None, ErrorCode.NULL_TEXT]


def test_a_text_longer_than_the_model_reads_is_marked(bench: Bench) -> None:
    assert bench.label(["my card is broken", "card " * 200]).truncated == [False, True]


def test_top_k_gives_the_best_labels_and_a_multi_label_model_those_over_its_threshold(
    bench: Bench, tmp_path: Path
) -> None:
    best = bench.label(["my card is broken"], top_k=3)
    multi = Bench(
        write_tiny_model(tmp_path / "multi", problem_type="multi_label_classification", output_name="logits"), tmp_path
    )
    try:
        all_labels = multi.label(["my card is broken"], threshold=0.0)
        no_label = multi.label(["my card is broken"], threshold=1.0)
    finally:
        multi.close()

    (ranked,) = best.ranked
    assert isinstance(ranked, list)
    assert next(one["label"] for one in ranked) == best.labels[0]
    assert len(ranked) == 3
    (ranked,) = all_labels.ranked
    assert isinstance(ranked, list)
    assert len(ranked) == len(multi.workload.models[lane_of(multi.workload, None).name].labels)  # type: ignore[attr-defined]
    assert (no_label.labels, no_label.scores, no_label.ranked) == ([None], [None], [[]])
    assert no_label.tally().unlabelled == 1


def test_batches_do_not_depend_on_how_the_file_is_cut_into_row_groups(bench: Bench) -> None:
    rows = texts(100)
    scores = []
    for row_group_size in (100, 7):
        span = bench.span({"text": rows}, row_group_size)
        scores.append(bench.labeller().label(span).scores)

    assert scores[0] == scores[1]


def test_the_speed_of_the_worker_is_measured_on_the_first_rows(bench: Bench) -> None:
    before = bench.engine.stats.rows

    rate = bench.labeller().rows_per_s(bench.span({"text": texts(600)}))

    assert bench.engine.stats.rows - before == 256
    assert rate > ASSUMED_ROWS_PER_S
    assert bench.labeller().rows_per_s(bench.span({"text": pa.array([None] * 9, pa.string())})) == ASSUMED_ROWS_PER_S


@pytest.mark.parametrize(
    ("end", "error"),
    [
        pytest.param(lambda bench: bench.engine.stop(0.0), Draining, id="the worker stops"),
        pytest.param(lambda bench: bench.heard.cancel_all(), Cancelled, id="it is called off"),
    ],
)
def test_a_shard_that_cannot_go_on_ends_at_once(
    bench: Bench, end: Callable[[Bench], None], error: type[Exception]
) -> None:
    span = bench.span({"text": texts(3000)})
    real = span.table.texts

    def reading(*args: Any) -> Iterator[Any]:  # noqa: ANN401 - as the table's own
        for number, batch in enumerate(real(*args)):
            if number == 3:
                end(bench)
            yield batch

    span.table.texts = reading  # type: ignore[method-assign]

    with pytest.raises(error):
        bench.labeller().label(span)
