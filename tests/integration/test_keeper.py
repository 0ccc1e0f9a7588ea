"""The keeper renews what is held, sweeps what the dead held, takes over a former life, and makes cancels last."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from schemas.names import Band
from tests.keeping import QUEUE, Kept, wait_swept
from tests.protocol import envelope
from tests.services import wait_until
from tests.telling import news
from worker import keeper as keeping
from worker import keys, ledger
from worker.jobs import Charge
from worker.metrics import DEAD_LETTERS, LEASE_RENEWALS, REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

LEASE_S: Final = 1.0
NEVER_S: Final = 1e6  # longer than any server has been up


@pytest.fixture
def make(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    """Make workers, by `incarnation` and `lease_s`, on an empty server; their keepers are stopped in the end."""
    monkeypatch.setattr(keeping, "SWEEP_EVERY_S", 0.1)
    client.flushall()
    made: list[Kept] = []

    def make_one(incarnation: str = "worker:host/5/1/boot", lease_s: float = LEASE_S) -> Kept:
        made.append(Kept(client, incarnation, lease_s))
        return made[-1]

    yield make_one
    for one in made:
        if one.keeper._thread.is_alive():  # noqa: SLF001 - some are never started
            one.keeper.stop()


def send(client: redis.Redis, *tags: str) -> None:
    for serial, tag in enumerate(tags):
        client.lpush(QUEUE, envelope(f"id of {tag}", tag, serial))


def uptime_s(client: redis.Redis) -> float:
    up_s: int = client.info("server")["uptime_in_seconds"]
    return up_s


def wait_up(client: redis.Redis, seconds: float) -> None:
    wait_until(lambda: uptime_s(client) >= seconds, what="the server is up for long enough")


def now_s(client: redis.Redis) -> float:
    seconds, microseconds = client.time()
    return float(seconds) + microseconds / 1e6


def renewed_s(client: redis.Redis, tag: str) -> float:
    score = client.zscore(keys.unacked_index(QUEUE), tag)
    assert score is not None
    return float(score)


def end_leases(client: redis.Redis) -> None:
    """As if everything that is held had last been renewed in 1970."""
    client.zadd(keys.unacked_index(QUEUE), dict.fromkeys(client.hkeys(keys.unacked(QUEUE)), 1))


def state(client: redis.Redis, tag: str) -> str:
    return str((client.get(f"{keys.JOB_PREFIX}id of {tag}") or b"").decode())


def dead_pid() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_what_is_held_is_renewed_for_as_long_as_the_worker_lives(
    make: Callable[..., Kept], client: redis.Redis
) -> None:
    wait_up(client, 2)
    lease_s = 2.0
    holder, other = make("holder:h/5/1/b", lease_s), make("other:h/5/2/b", lease_s)
    send(client, "one")
    holder.take()
    first_s = renewed_s(client, "one")
    holder.keeper.start()
    other.keeper.start()

    wait_until(lambda: renewed_s(client, "one") > first_s + 1.5 * lease_s)

    assert state(client, "one").startswith("H holder:h/5/1/b:1 ")
    assert not holder.lost
    assert set(client.zrange(keys.WORKERS, 0, -1)) == {b"holder:h/5/1/b", b"other:h/5/2/b"}


def test_lost_claims_are_forgotten_and_told_once(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder, thief = make("holder:h/5/1/b"), make("thief:h/5/2/b")
    send(client, "one", "two")
    holder.take(1)
    thief.ledger.sweep(former=holder.ledger.incarnation)
    thief.take(1)
    holder.take(1)

    holder.keeper.start()

    wait_until(lambda: holder.lost)
    wait_swept(client)
    assert holder.lost == [{"one"}]
    assert holder.custody.tags() == ["two"]


def test_a_message_that_comes_back_while_its_older_claim_is_found_lost_stays_held(
    make: Callable[..., Kept], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, thief = make("holder:h/5/1/b"), make("thief:h/5/2/b")
    send(client, "one")
    holder.take()
    thief.ledger.sweep(former=holder.ledger.incarnation)
    renew, renewals = holder.ledger.renew, list[set[str]]()

    def renew_and_take(*args: Any) -> set[str]:  # noqa: ANN401 - whatever it is given
        renewals.append(lost := renew(*args))
        if len(renewals) == 1:
            holder.take()
        return lost

    monkeypatch.setattr(holder.ledger, "renew", renew_and_take)
    holder.keeper.start()

    wait_until(lambda: len(renewals) >= 3)
    assert renewals[:3] == [{"one"}, set(), set()]
    assert holder.lost == []
    assert [one.claim for one in holder.custody.all()] == ["holder:h/5/1/b:2"]


def test_what_a_dead_worker_held_goes_back_once_its_lease_has_ended(
    make: Callable[..., Kept], client: redis.Redis
) -> None:
    wait_up(client, LEASE_S)
    dead = make("dead:h/5/1/b")
    send(client, "one")
    dead.take()
    taken_s = renewed_s(client, "one")

    make("living:h/5/2/b").keeper.start()

    wait_until(lambda: client.llen(QUEUE) == 1)
    assert now_s(client) >= taken_s + LEASE_S
    assert client.exists(keys.unacked(QUEUE), keys.unacked_index(QUEUE)) == 0
    assert state(client, "one") == "F 0"


def test_dead_letters_are_told_of_and_what_goes_back_is_not(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, 2 * LEASE_S)  # from then on the sweep blames
    living = make("living:h/5/2/b")
    living.keeper.start()
    for crash in range(3):
        assert living.deaths == []
        dead = make(f"dead:h/{crash}/1/b")
        dead.ledger.open_inboxes([QUEUE])  # who is not announced is tidied up at once, its marks too
        dead.ledger.mark_running("runner-0", ["one"])  # the lease may end as soon as it is taken
        if not crash:
            send(client, "one")
        wait_until(lambda dead=dead: dead.take() or dead.custody.tags(), what="the message has come back")
        end_leases(client)

    wait_until(lambda: living.deaths == [None], what="its end to be told")
    assert client.hkeys(keys.dead(QUEUE)) == [b"id of one"]


def test_what_lies_in_a_dead_workers_inbox_goes_back(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, LEASE_S)
    dead = make("dead:h/5/1/b")
    inbox = dead.ledger.open_inboxes([QUEUE])[QUEUE]
    send(client, "one")
    client.lmove(QUEUE, inbox, "RIGHT", "LEFT")

    make("living:h/5/2/b").keeper.start()

    wait_until(lambda: client.llen(QUEUE) == 1)
    wait_until(lambda: client.zrange(keys.WORKERS, 0, -1) == [b"living:h/5/2/b"], what="the dead to be forgotten")
    assert client.hkeys(keys.INBOXES) == [b"living:h/5/2/b"]


def test_a_death_during_inference_is_blamed_on_what_ran(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, 2 * LEASE_S)
    dead = make("dead:h/5/1/b")
    send(client, "ran", "waited")
    dead.ledger.open_inboxes([QUEUE])
    dead.take()
    dead.ledger.mark_running("runner", ["ran"])
    end_leases(client)

    make("living:h/5/2/b").keeper.start()

    wait_until(lambda: client.llen(QUEUE) == 2)
    assert (state(client, "ran"), state(client, "waited")) == ("F 1", "F 0")


def test_nothing_is_swept_right_after_the_server_has_started(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder = make("holder:h/5/1/b")
    send(client, "one")
    holder.take()
    end_leases(client)

    make("living:h/5/2/b", lease_s=NEVER_S).keeper.start()

    wait_swept(client)
    assert client.llen(QUEUE) == 0
    assert state(client, "one").startswith("H holder")


def test_nobody_is_blamed_within_a_lease_of_that(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, 2)
    holder, living = make("holder:h/5/1/b"), make("living:h/5/2/b", lease_s=uptime_s(client))
    send(client, "one")
    holder.take()
    holder.ledger.mark_running("runner", ["one"])
    end_leases(client)

    living.keeper.start()

    wait_until(lambda: client.llen(QUEUE) == 1)
    assert state(client, "one") == "F 0"


def test_a_revoke_that_celery_heard_is_kept_for_as_long_as_a_result(
    make: Callable[..., Kept], client: redis.Redis
) -> None:
    worker = make(lease_s=NEVER_S)
    worker.revoked.add("one")
    began_s = now_s(client)
    worker.keeper.start()
    wait_until(lambda: client.zscore(keys.CANCELLED, "one"))

    worker.revoked.add("two")
    wait_until(lambda: client.zscore(keys.CANCELLED, "two"))

    for task_id in ("one", "two"):
        assert began_s + 499 <= (client.zscore(keys.CANCELLED, task_id) or 0) <= now_s(client) + 500


def test_a_cancel_is_forgotten_after_its_time(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, LEASE_S)
    client.zadd(keys.CANCELLED, {"old": now_s(client) - 1, "new": now_s(client) + 100})

    make().keeper.start()

    wait_until(lambda: client.zrange(keys.CANCELLED, 0, -1) == [b"new"])


def test_how_fast_the_worker_is_can_be_read(make: Callable[..., Kept], client: redis.Redis) -> None:
    worker = make(lease_s=NEVER_S)
    worker.keeper.start()
    wait_until(lambda: client.hget(keys.RATES, worker.ledger.incarnation) == b"12.3")

    worker.rate = 50.0
    wait_until(lambda: client.hget(keys.RATES, worker.ledger.incarnation) == b"50")


def test_a_rate_is_written_with_the_renewal_of_what_is_held(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder = make()
    holder.meter.rates.opened(Charge(QUEUE, Band.NORMAL), 2, 10)
    holder.meter.rates.done(QUEUE, 25, {"runners": 2.0})
    send(client, "one", "two")
    holder.take()
    first_s = renewed_s(client, "one")
    holder.keeper.start()
    wait_until(lambda: client.hget(keys.SERVICE_RATES, QUEUE) == b"2.5")
    wait_until(lambda: renewed_s(client, "one") > first_s and renewed_s(client, "two") > first_s)
    assert not holder.lost


def test_how_busy_a_worker_is_can_be_read_while_it_lives(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, LEASE_S)
    dead, living = make("dead:h/5/1/b"), make("living:h/5/2/b")
    dead.ledger.renew([], loads={QUEUE: (1.0, 0.0, 0.25)})
    dead.ledger.renew([])
    assert client.hget(keys.LOADS, "dead:h/5/1/b") == b"1.00 0.00 0.25 classify"

    living.keeper.start()
    with living.meter.loads.busy("runners", {Charge(QUEUE, Band.NORMAL): 1.0}):
        wait_until(lambda: float((client.hget(keys.LOADS, "living:h/5/2/b") or b"0 0").split()[1]) > 0)
    wait_until(lambda: client.hkeys(keys.LOADS) == [b"living:h/5/2/b"], what="the dead to be forgotten")


def test_more_than_one_renewal_takes_says_how_busy_it_is(
    make: Callable[..., Kept], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "RENEW_AT_ONCE", 1)
    holder = make()
    send(client, "one", "two")
    holder.take()
    before_s = renewed_s(client, "two")
    assert holder.ledger.renew(holder.custody.all(), {QUEUE: news(8.0, 2, 2)}, {QUEUE: (0.5, 0.0, 0.0)}) == set()
    assert min(renewed_s(client, tag) for tag in ("one", "two")) > before_s
    assert client.hvals(keys.LOADS) == [b"0.50 0.00 0.00 classify"]
    assert client.hget(keys.SERVICE_RATES, QUEUE) == b"8"
    assert client.hget(keys.MESSAGE_SIZES, QUEUE) == b"1.98 1.98", "told once"


def test_renewals_are_counted_by_what_came_of_them(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder, thief = make("holder:h/5/1/b"), make("thief:h/5/2/b")
    send(client, "one", "two")
    holder.take()
    thief.ledger.sweep(former=holder.ledger.incarnation)
    thief.take(1)

    holder.keeper.start()
    wait_until(lambda: holder.lost)
    wait_until(lambda: holder.heard)
    renewals = holder.tallies.numbers(LEASE_RENEWALS)
    assert renewals["lost",] == 2
    assert renewals["renewed",] >= 1  # its own


def test_what_the_sweep_did_is_counted_by_queue(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, 2 * LEASE_S)  # from then on the sweep blames
    dead, living = make("dead:h/5/1/b"), make("living:h/5/2/b")
    send(client, "poison", "good")
    client.set(f"{keys.JOB_PREFIX}id of poison", "F 2")
    dead.take()
    dead.ledger.mark_running("runner-0", ["poison"])
    end_leases(client)

    living.keeper.start()

    wait_until(lambda: client.llen(QUEUE) == 1)
    wait_until(lambda: living.tallies.numbers(REDELIVERIES) == {(QUEUE,): 1}, what="it is counted")
    assert living.tallies.numbers(DEAD_LETTERS) == {(QUEUE,): 1}


def test_a_lost_connection_costs_no_lease(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder = make()
    send(client, "one")
    holder.take()
    holder.keeper.start()
    for _ in range(3):
        before_s = renewed_s(client, "one")
        client.client_kill_filter(_type="normal", skipme=True)
        wait_until(lambda before_s=before_s: renewed_s(client, "one") > before_s)

    assert not holder.lost


def test_a_full_server_costs_no_lease(make: Callable[..., Kept], client: redis.Redis) -> None:
    wait_up(client, LEASE_S)
    holder, dead = make("holder:h/5/1/b"), make("dead:h/5/2/b")
    send(client, "one", "two")
    holder.take(1)
    dead.take(1)
    client.config_set("maxmemory", 1)
    try:
        holder.revoked.add("cannot be written down")
        holder.keeper.start()
        first_s = renewed_s(client, "one")
        wait_until(lambda: renewed_s(client, "one") > first_s + 1.5 * LEASE_S)
        wait_until(lambda: client.llen(QUEUE) == 1, what="the sweep")
    finally:
        client.config_set("maxmemory", 0)

    assert not holder.lost
    wait_until(lambda: client.zcard(keys.CANCELLED) == 1)


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "alive"])
def test_a_former_life_is_taken_over_at_once_if_it_has_surely_ended(
    make: Callable[..., Kept], client: redis.Redis, *, is_dead: bool
) -> None:
    pid = dead_pid() if is_dead else os.getppid()
    before = make(f"worker:host/5/{pid}/x", lease_s=NEVER_S)
    inbox = before.ledger.open_inboxes([QUEUE])[QUEUE]
    send(client, "held", "in the inbox")
    before.take(1)
    client.lmove(QUEUE, inbox, "RIGHT", "LEFT")

    make(f"worker:host/5/{os.getpid()}/y", lease_s=NEVER_S).keeper.start()

    assert client.llen(QUEUE) == (2 if is_dead else 0)
    assert client.hlen(keys.unacked(QUEUE)) == (0 if is_dead else 1)


@pytest.mark.parametrize("holds", [True, False])
def test_a_former_life_is_a_warning_only_if_it_held_something(
    make: Callable[..., Kept], client: redis.Redis, *, holds: bool
) -> None:
    before = make(f"worker:host/5/{dead_pid()}/x", lease_s=NEVER_S)
    before.ledger.open_inboxes([QUEUE])
    if holds:
        send(client, "held")
        before.take(1)

    with capture_logs() as logs:
        make(f"worker:host/5/{os.getpid()}/y", lease_s=NEVER_S).keeper.start()

    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["sweep.took_over"] * holds


def test_what_ran_when_a_former_life_ended_is_blamed(make: Callable[..., Kept], client: redis.Redis) -> None:
    before = make(f"worker:host/5/{dead_pid()}/x", lease_s=NEVER_S)
    before.ledger.open_inboxes([QUEUE])
    send(client, "ran", "waited")
    before.take()
    before.ledger.mark_running("runner", ["ran"])

    make(f"worker:host/5/{os.getpid()}/y", lease_s=NEVER_S).keeper.start()

    assert (state(client, "ran"), state(client, "waited")) == ("F 1", "F 0")


def test_a_keeper_that_has_stopped_renews_nothing(make: Callable[..., Kept], client: redis.Redis) -> None:
    holder = make()
    send(client, "one")
    holder.take()
    holder.keeper.start()
    first_s = renewed_s(client, "one")
    wait_until(lambda: renewed_s(client, "one") > first_s)

    holder.keeper.stop()

    last_s = renewed_s(client, "one")
    wait_until(lambda: now_s(client) > last_s + LEASE_S)
    assert renewed_s(client, "one") == last_s
