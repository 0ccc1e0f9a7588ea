"""Jobs and items: what travels from a message to its result.

A message is a job; a job is a list of items; an item is the batcher's unit. Every item gets exactly one outcome, and
the job ends with its last item. This module knows neither Celery nor any kind of item.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from schemas.names import Band

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from concurrent.futures import Future

    from worker.metrics import Metric


class Charge(NamedTuple):
    """Whose work something is, as autoscaling counts it: the queue of its message, and the band."""

    queue: str
    band: int  # a plain number: an enumeration's members are slow to look up by


NOBODY: Final = Charge("", 0)


@dataclass(slots=True, eq=False)
class Hold:
    """Memory that an item takes before it runs, and that it or those which it gave rise to need until they have run.

    Attributes:
        bytes: the most that it may come to; less once that is known.
        items: how many still need it.
    """

    bytes: int
    items: int = 1


@dataclass(slots=True, eq=False, repr=False)  # a repr would quote the ticket
class Item:
    """One unit of inference.

    Attributes:
        job: the job it belongs to.
        index: its position in the job's result list.
        source: the validated input, as the pipeline's schema parsed it.
        lane: name of the model that runs it.
        features: what the session reads; set by `Pipeline.prepare`.
        length: tokens that the session sees, the unit of padding.
        padding: how much of `length` is the item's own padding.
        key: equal keys are identical inputs, which share one row of a batch; None is never shared.
        truncated: whether `features` hold less than `source`.
        queued_s: when it came to the batcher.
        outcome: what the model returned for it, or `ItemFailed`; None until then.
        is_spawned: whether another item's outcome gave rise to it.
        hold: what it takes of its job's allowance until it has its outcome; None = nothing.
    """

    job: Job
    index: int
    source: object
    lane: str = ""
    features: object = None
    length: int = 0
    padding: int = 0
    key: Hashable | None = None
    truncated: bool = False
    queued_s: float = 0.0
    outcome: object = None
    is_spawned: bool = False
    hold: Hold | None = None


@dataclass(slots=True, eq=False, repr=False)  # a repr would quote the ticket
class Job:
    """One message on its way through the engine.

    Times are monotonic seconds of the engine's clock, but for `queue_wait_s`, a duration.

    Attributes:
        pipeline: what understands it.
        enqueued_s: since when it waits: when it was enqueued where the producer said so, else when it came.
        band: its priority.
        charge: whose work it is; a part of a message runs at another band than that came with.
        is_on_credit: it was fetched on the worker's credit (`worker.credit`), which it takes up until it has run.
        context: whatever its owner attaches; the engine never looks.
        deadline_s: when its producer stops waiting; None = never.
        queue_wait_is_lower_bound: the producer did not say when it enqueued.
        request: what `Pipeline.open` parsed.
        error: why the whole job failed, once it did.
        pending: items without an outcome.
        suspect: it was in inference when a worker died, and runs with nothing else.
        served: whether a batch with an item of it has been formed.
        real_tokens, padded_tokens: what its own rows cost; a row shared by identical inputs counts for the first.
        inference_s: Σ duration of the batches it was in.
        runner_s: its rows' share of that, as far as it was the runners'.
        apart_s: what of that was of lanes that have threads of their own.
        outcomes: of its items once the result is made: `ok` or an error code each, for the metrics.
        labels: what a model chose for them, for its label shares; empty where models choose nothing.
        tokens, pixels: what models read of its items, in the unit of their kind.
        waiter: who waits for its items inside this process, where it is no message but a part of one.
        allowance_bytes: what the holds of its items may come to; an item whose hold alone is more runs by itself.
    """

    id: str
    pipeline: Pipeline
    enqueued_s: float
    band: Band = Band.INTERACTIVE
    charge: Charge = NOBODY
    is_on_credit: bool = True
    context: object = None
    deadline_s: float | None = None
    queue_wait_s: float = 0.0
    queue_wait_is_lower_bound: bool = True
    request: object = None
    items: list[Item] = field(default_factory=list)
    error: BaseException | None = None
    pending: int = 0
    suspect: bool = False
    served: bool = False
    batches: int = 0
    batch_size_max: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    inference_s: float = 0.0
    runner_s: float = 0.0
    apart_s: float = 0.0
    outcomes: Sequence[str] = ()
    labels: Sequence[str] = ()
    tokens: int = 0
    pixels: int = 0
    waiter: Future[None] | None = None
    allowance_bytes: int = 0

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a message that runs elsewhere, and no message of its own."""
        return self.waiter is not None

    def let_go(self) -> None:
        """Part from the items once nobody will read them: their circle would wait for the garbage collector."""
        self.items = []

    def timings(self) -> dict[str, object]:
        """Return the wire form, as `schemas.results.Timings` describes it."""
        return {
            "queue_wait_s": round(self.queue_wait_s, 6),
            "queue_wait_is_lower_bound": self.queue_wait_is_lower_bound,
            "inference_s": round(self.inference_s, 6),
            "batches": self.batches,
            "batch_size_max": self.batch_size_max,
            "real_tokens": self.real_tokens,
            "padded_tokens": self.padded_tokens,
        }


class Cancellation:
    """The watchdog's way to stop a batch that runs too long. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._terminate: Callable[[], None] | None = None
        self.cancelled = False

    def hook(self, terminate: Callable[[], None]) -> None:
        """Register what ends the running call; called at once when it is too late already."""
        with self._lock:
            self._terminate = terminate
            cancelled = self.cancelled
        if cancelled:
            terminate()

    def cancel(self) -> None:
        """End the running call, and every later one of this batch."""
        with self._lock:
            self.cancelled = True
            terminate = self._terminate
        if terminate is not None:
            terminate()


class Model(Protocol):
    """What a lane runs. Thread-safe: several runners share one."""

    name: str
    info: Mapping[str, str]
    max_length: int

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        """Return one output, or `ItemFailed`, for each of `features`. Blocks."""
        ...

    def sample(self, batch_size: int, length: int) -> list[object]:
        """Return features of that shape, for warm-up and calibration."""
        ...


class Pipeline(Protocol):
    """What a kind of task knows and the engine does not.

    Attributes:
        reads: what counts how much models read of its items, `Job.tokens` or `Job.pixels`.
    """

    @property
    def reads(self) -> Metric:
        """See above."""
        ...

    def open(self, job: Job, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Validate the message; set `job.request` and `job.items`.

        Raises:
            MessageError: the message is wrong as a whole.
        """
        ...

    def prepare(self, items: Sequence[Item]) -> None:
        """Set `features`, `length`, `key` and `truncated` of each item, or its `outcome` to `ItemFailed`."""
        ...

    def spawn(self, item: Item) -> Sequence[Item]:
        """Return the items that an item's outcome gives rise to, prepared or failed already; on a runner's thread.

        Asked only about items of lanes that spawn, and about none that failed.
        """
        ...

    def complete(self, job: Job) -> dict[str, object]:
        """Return the message's result, in JSON types, from the outcomes of its items.

        Sets `outcomes`, `labels`, `tokens` and `pixels` of the job, as far as its kind has them.
        """
        ...
