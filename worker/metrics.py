"""The catalogue of metrics: what batchmill publishes, declared once, for the code, the documentation and the alerts.

Names follow Prometheus: seconds, counters end in `_total`. A label's values are few and known: a task, a queue, a lane,
a stage, an error code, a label of the model. None is ever an id, a file's name, a URI or text. docs/metrics.md is
generated from here. This module counts nothing, see `worker.tallies`, and publishes nothing, see
`worker.ops.publishing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What Prometheus may do with a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Side(StrEnum):
    """Which process publishes a metric."""

    WORKER = "worker"
    EXPORTER = "exporter"


@dataclass(frozen=True, slots=True, eq=False)  # one object each: cheap to look up by
class Metric:
    """One metric.

    Attributes:
        name: as it is published.
        kind: its type.
        labels: the names of its labels, in the order of their values.
        help: what it counts, with its unit.
        side: who publishes it.
        buckets: of a histogram, the upper bounds, ascending.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    side: Side
    buckets: tuple[float, ...] = ()


STATES: Final = ("succeeded", "failed", "expired", "cancelled")
STAGES: Final = ("queue_wait", "prepare", "batch_wait", "inference", "commit")
RENEWALS: Final = ("renewed", "lost", "failed")
ROWS: Final = ("ok", "rejected")
OK: Final = "ok"
NO_LABEL: Final = "none"
"""The best label of a ticket for which a multi-label model found none."""

REFUSED: Final = "refused"
"""The task of a message that was refused at the door: the name that it carries is anybody's."""

_STAGE_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_BATCH_ITEMS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_UNIT: Final = "tokens of tickets, pixel columns of text lines, whole documents and pages"


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, Kind.COUNTER, labels, text, Side.WORKER)


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, Kind.GAUGE, labels, text, Side.WORKER)


def _seen(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, Kind.GAUGE, labels, text, Side.EXPORTER)


JOBS: Final = _counter(
    "batchmill_jobs_total",
    ("task", "state"),
    "Messages that came to an end here: succeeded, failed, expired or cancelled; of task `refused` are those that no "
    "task could read. A message cancelled before a worker took it is not counted.",
)
ITEMS: Final = _counter(
    "batchmill_items_total",
    ("task", "outcome"),
    "Tickets and documents of recorded messages: `ok` or the code of their error.",
)
STAGE: Final = Metric(
    "batchmill_stage_seconds",
    Kind.HISTOGRAM,
    ("stage",),
    "Seconds: queue_wait of a message from enqueueing (from its arrival where no producer says) to its first batch, "
    "but for bulk runs and their shards, which may wait for hours; "
    "prepare of a portion of messages and items; batch_wait of a batch's first item from prepared to running; "
    "inference, a batch; commit of a group of results.",
    Side.WORKER,
    _STAGE_S,
)
BATCH_ITEMS: Final = Metric(
    "batchmill_batch_items", Kind.HISTOGRAM, ("lane",), "Items of a model call.", Side.WORKER, _BATCH_ITEMS
)
REAL_UNITS: Final = _counter("batchmill_real_units_total", ("lane",), f"Input of model calls without padding: {_UNIT}.")
PADDED_UNITS: Final = _counter(
    "batchmill_padded_units_total",
    ("lane",),
    f"Input of model calls with padding: {_UNIT}. Padding waste is (padded - real) / real.",
)
TOKENS: Final = _counter(
    "batchmill_tokens_total", ("task",), "Tokens of recorded tickets and of bulk rows that a model has read."
)
PIXELS: Final = _counter("batchmill_pixels_total", ("task",), "Decoded pixels of recorded pages.")
BUSY: Final = _counter("batchmill_busy_seconds_total", ("lane",), "Seconds of runners inside model calls.")
RUNNERS: Final = _gauge("batchmill_runners", (), "Threads that run batches.")
LABELS: Final = _counter(
    "batchmill_labels_total",
    ("model", "label"),
    "Recorded tickets by their best label; a bulk run has its shares in the manifest.",
)
BULK_ROWS: Final = _counter(
    "batchmill_bulk_rows_total", ("outcome",), "Rows of the parts that this worker made: ok or rejected."
)
MODEL_INFO: Final = _gauge(
    "batchmill_model_info", ("model", "version", "sha256", "precision", "provider"), "1 for each model that is served."
)
HELD: Final = _gauge("batchmill_held_messages", ("queue",), "Messages that this worker holds.")
LEASE_RENEWALS: Final = _counter(
    "batchmill_lease_renewals_total",
    ("result",),
    "Leases that were to be renewed, this worker's own and one a message: renewed, lost to others, or failed because "
    "the broker did not answer.",
)
REDELIVERIES: Final = _counter(
    "batchmill_redeliveries_total",
    ("queue",),
    "Messages that this worker's sweep gave back because their worker's lease had ended.",
)
DEAD_LETTERS: Final = _counter(
    "batchmill_dead_letters_total", ("queue",), "Messages that this worker's sweep gave up for good."
)
READY: Final = _gauge("batchmill_ready", (), "1 while /ready answers 200.")

QUEUE_WAITING: Final = _seen(
    "batchmill_queue_waiting",
    ("queue", "band"),
    "Messages that wait, those in the inboxes of idle workers included, one band for each priority list.",
)
QUEUE_IN_FLIGHT: Final = _seen("batchmill_queue_in_flight", ("queue",), "Messages that workers hold.")
QUEUE_OVERDUE: Final = _seen("batchmill_queue_overdue", ("queue",), "Messages in flight whose lease has ended.")
QUEUE_OLDEST_AGE: Final = _seen(
    "batchmill_queue_oldest_age_seconds",
    ("queue",),
    "Seconds since the oldest waiting message was enqueued, by its header `enqueued_at`; 0 with nothing waiting, "
    "absent where no producer says.",
)
QUEUE_BACKLOG: Final = _seen(
    "batchmill_queue_backlog_seconds",
    ("queue", "band"),
    "Seconds that one busy worker needs for what waits, by the scheduler's bands.",
)
QUEUE_BUSY: Final = _seen(
    "batchmill_queue_busy_workers",
    ("queue", "band"),
    "Workers that were busy with the queue lately, each for the share of its time, over about two minutes.",
)
QUEUE_RATE: Final = _seen(
    "batchmill_queue_rate",
    ("queue", "source"),
    "Messages a second that one busy worker gets done: measured by the workers, or configured until they have.",
)
QUEUE_WORKERS: Final = _seen("batchmill_queue_workers", ("queue",), "Live workers that serve the queue.")
QUEUE_DEAD: Final = _seen("batchmill_queue_dead_letters", ("queue",), "Dead letters that are kept.")
QUEUE_UNREADABLE: Final = _seen("batchmill_queue_unreadable", ("queue",), "Entries that were no messages, kept aside.")
BROKER_UP: Final = _seen("batchmill_broker_up", (), "1 if the exporter's last look at the broker succeeded.")
BULK_DONE: Final = _seen(
    "batchmill_bulk_last_success_timestamp_seconds",
    ("task",),
    "Unix time at which the last run of this task was finalised, `bulk.classify` or `bulk.ocr`; 0 if none is known.",
)

CATALOGUE: Final = (
    *(JOBS, ITEMS, STAGE, BATCH_ITEMS, REAL_UNITS, PADDED_UNITS, TOKENS, PIXELS, BUSY, RUNNERS, LABELS, BULK_ROWS),
    *(MODEL_INFO, HELD, LEASE_RENEWALS, REDELIVERIES, DEAD_LETTERS, READY),
    *(QUEUE_WAITING, QUEUE_IN_FLIGHT, QUEUE_OVERDUE, QUEUE_OLDEST_AGE, QUEUE_BACKLOG, QUEUE_BUSY, QUEUE_RATE),
    *(QUEUE_WORKERS, QUEUE_DEAD, QUEUE_UNREADABLE, BROKER_UP, BULK_DONE),
)


def metrics_table() -> str:
    """Return the Markdown table of all metrics, in the order of the catalogue."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels) or '–'} "
        f"| {metric.side} | {metric.help} |"
        for metric in CATALOGUE
    ]
    return "\n".join(["| metric | type | labels | published by | meaning |", "|---|---|---|---|---|", *rows]) + "\n"
