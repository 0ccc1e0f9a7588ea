"""What is known of a run: its parts from the store, which is the truth, and of the other shards what Redis knows.

A shard is done when its part is there, whatever became of its messages. Of those that are not, the last attempt that
came to an end says why, unless another waits or runs. A look changes nothing. It does not know how its answer is shown,
nor what is in a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from celery import states

from schemas.errors import ErrorCode, MessageError
from tasks.bulk.attempts import open_attempts, task_id
from tasks.bulk.failures import refusing
from tasks.bulk.finaliser import read_manifest
from tasks.bulk.layout import manifest_uri, normalised, part_uri, success_uri
from tasks.bulk.parts import part_names
from tasks.bulk.planning import plan_key
from tasks.bulk.sending import queue_of
from worker.ops.ends import Known, known
from worker.ops.jobs import waiting_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import redis

    from schemas.bulk_manifest import BulkManifest
    from schemas.bulk_plan import BulkPlan
    from worker.storage.objects import ObjectStore

_DEAD: Final = "dead_lettered"
"""What the text of a dead letter's result begins with."""


class Standing(StrEnum):
    """How a shard's messages stand. Only the first two go on by themselves."""

    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Never sent, forgotten by the database, or its part was deleted."""


class Phase(StrEnum):
    """How a run stands."""

    FINISHED = "finished"
    RUNNING = "running"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    """Nothing of it waits, runs or has failed; `resume` brings it on."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard that is not done, or that ended the run badly.

    Attributes:
        shard: its index in the plan.
        standing: how its messages stand.
        task_id: of the attempt that says so; of one that is lost, the next to be sent.
        error: why it failed, `code: text`; None if it did not.
    """

    shard: int
    standing: Standing
    task_id: str
    error: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.standing in (Standing.RUNNING, Standing.WAITING)

    @property
    def code(self) -> str | None:
        """The code of its failure."""
        return None if self.error is None else self.error.partition(": ")[0]


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment.

    Attributes:
        plan: the run's.
        done: the shards whose part is there.
        shards: those without one; once there is none, those whose message failed or is still at the end of the run.
        manifest: the one that stands.
        is_complete: whether `_SUCCESS` stands, too.
        is_planning: the message that planned it has not ended: its shards may not have been sent yet.
    """

    plan: BulkPlan
    done: frozenset[int]
    shards: tuple[ShardState, ...] = ()
    manifest: BulkManifest | None = None
    is_complete: bool = False
    is_planning: bool = False

    @property
    def rows_done(self) -> int:
        """Rows of the shards that are done."""
        return sum(self.plan.shards[shard].rows for shard in self.done)

    @property
    def phase(self) -> Phase:
        """How the run stands, in one word."""
        standings = {one.standing for one in self.shards}
        if self.manifest is not None and self.is_complete:
            return Phase.FINISHED
        if self.is_planning or standings & {Standing.RUNNING, Standing.WAITING}:
            return Phase.RUNNING
        if standings & {Standing.FAILED, Standing.DEAD}:
            return Phase.FAILED
        return Phase.CANCELLED if Standing.CANCELLED in standings else Phase.STALLED

    def of(self, *standings: Standing) -> list[ShardState]:
        """Return the shards that stand so, in order."""
        return [one for one in self.shards if one.standing in standings]


def look(store: ObjectStore, plan: BulkPlan, client: redis.Redis) -> RunState:
    """Return how a run stands. Blocks for one listing of the output, and on the database.

    Args:
        store: where the output is.
        plan: as it is stored.
        client: one that returns bytes.

    Raises:
        MessageError: `output_in_use`, another run's manifest is there; or the store refuses or fails.
    """
    output = normalised(plan.request.output)
    uris = [part_uri(output, name) for name in part_names(plan)]
    with refusing():
        found = {info.uri for info in store.list(f"{output}/")}
        manifest = _manifest(store, plan, output) if manifest_uri(output) in found else None
        is_complete = manifest is not None and store.exists(success_uri(output))
    done = frozenset(shard for shard, uri in enumerate(uris) if uri in found)
    if manifest is not None and is_complete:
        return RunState(plan, done, manifest=manifest, is_complete=True)
    planner = known(client, [plan.job_id])[plan.job_id]
    missing = [shard for shard in range(len(uris)) if shard not in done]
    shards = tuple(shard_states(client, plan, missing or range(len(uris))))
    if missing:
        # One that ended between the listing and the question has its part by now.
        late = {one.shard for one in shards if one.standing is Standing.LOST and store.exists(uris[one.shard])}
        done, shards = done | late, tuple(one for one in shards if one.shard not in late)
    else:
        shards = tuple(one for one in shards if one.is_open or one.error is not None)
    return RunState(plan, done, shards, manifest, is_complete, planner.is_held or planner.is_given_back)


def shard_states(client: redis.Redis, plan: BulkPlan, shards: Iterable[int]) -> Iterator[ShardState]:
    """Yield how the messages of these shards stand; blocks on the database, which is asked in portions.

    Args:
        client: one that returns bytes.
        plan: the run's.
        shards: indices of its shards.
    """
    shards, job_id = list(shards), plan.job_id
    # First: what is taken now has a job key then.
    waiting = waiting_ids(client, queue_of(plan.request)) if shards else frozenset()
    seen: dict[str, Known] = {}

    def over(ids: list[str]) -> Collection[str]:
        asked = known(client, ids)
        seen.update(asked)
        return {name for name, one in asked.items() if one.is_over}

    for shard, (attempt, name) in open_attempts(job_id, shards, over).items():
        standing = _open_standing(seen[name], is_waiting=name in waiting)
        if standing is not None:
            yield ShardState(shard, standing, name)
        elif attempt == 0:
            yield ShardState(shard, Standing.LOST, name)
        else:
            last = task_id(job_id, shard, attempt - 1)
            yield _ended(shard, last, seen[last])


def _open_standing(one: Known, *, is_waiting: bool) -> Standing | None:
    if one.is_held:
        return Standing.RUNNING
    return Standing.WAITING if is_waiting or one.is_given_back else None


def _ended(shard: int, name: str, one: Known) -> ShardState:
    make = partial(ShardState, shard, task_id=name)
    if one.status == states.FAILURE and one.error is not None:
        standing = Standing.DEAD if one.error.startswith(_DEAD) else Standing.FAILED
        return make(standing=standing, error=one.error)
    if one.is_cancelled or one.status == states.REVOKED:
        return make(standing=Standing.CANCELLED)
    return make(standing=Standing.LOST)


def _manifest(store: ObjectStore, plan: BulkPlan, output: str) -> BulkManifest | None:
    manifest = read_manifest(store, output)
    if manifest is not None and manifest.plan_key != plan_key(plan):
        text = f"{manifest_uri(output)}: it is of run {manifest.job_id}, the plan beside it of run {plan.job_id}"
        raise MessageError(ErrorCode.OUTPUT_IN_USE, text)
    return manifest
