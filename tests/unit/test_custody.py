"""What a worker holds, message by message, and what of it the server still knows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from kombu.utils.json import dumps

from tests.protocol import envelope
from worker import keys
from worker.custody import Custody
from worker.ledger import Drained, Held, Ledger, Terms

if TYPE_CHECKING:
    import redis

QUEUE = "classify"


@pytest.fixture
def custody(client: redis.Redis) -> Custody:
    """Nothing is held yet; five messages, `one` to `five`, wait."""
    client.flushall()
    for serial, tag in enumerate(["one", "two", "three", "four", "five"]):
        client.lpush(QUEUE, envelope(f"id of {tag}", tag, serial))
    return Custody(Ledger(client, "worker:boot", [QUEUE], Terms()))


def take(custody: Custody, messages: int) -> list[Drained]:
    drained = custody.ledger.drain(messages)
    custody.take(drained)
    return drained


def steal(custody: Custody) -> None:
    """Let another worker take everything that is held."""
    sweep(custody)
    Ledger(custody.ledger.client, "other:boot", [QUEUE], Terms()).drain(100)


def sweep(custody: Custody) -> None:
    """Let another worker find the leases of everything that is held ended: it goes back to the front of its queue."""
    Ledger(custody.ledger.client, "other:boot", [QUEUE], Terms()).sweep(former=custody.ledger.incarnation)


def next_tags(custody: Custody) -> list[str]:
    """The tags of what the queue serves next."""
    return [one.held.tag for one in custody.ledger.drain(100)]


def held_by_the_server(custody: Custody) -> set[bytes]:
    return set(custody.ledger.client.hkeys(keys.unacked(QUEUE)))


def made_up(tag: str, message_bytes: int, crashes: int = 0) -> Drained:
    return Drained(Held(QUEUE, tag, f"id of {tag}", "worker:boot:1"), crashes, b"x" * message_bytes)


def test_what_was_drained_is_held_in_order_of_arrival(custody: Custody) -> None:
    take(custody, 2)
    take(custody, 1)

    assert custody.tags() == ["one", "two", "three"]
    assert [held.task_id for held in custody.all()] == ["id of one", "id of two", "id of three"]
    assert len(custody) == 3
    assert "two" in custody
    assert "four" not in custody
    assert custody.get("three").held.claim == "worker:boot:2"


def test_it_knows_how_often_a_worker_died_of_a_message(custody: Custody) -> None:
    custody.take([made_up("suspect", 1, crashes=2), made_up("other", 1)])

    assert (custody.crashes("suspect"), custody.crashes("other"), custody.crashes("unknown")) == (2, 0, 0)


def test_the_size_of_what_is_held_adds_up(custody: Custody) -> None:
    taken = take(custody, 3)
    sizes = [len(one.message) for one in taken]
    assert custody.held_bytes == sum(sizes)

    custody.done("one")
    custody.forget([taken[1].held, made_up("unknown", 1).held])
    assert custody.held_bytes == sizes[2]

    custody.give_back(["three"])
    assert custody.held_bytes == 0


def test_a_message_that_comes_back_under_its_tag_is_held_once(custody: Custody) -> None:
    custody.take([made_up("one", 10)])
    custody.take([made_up("one", 20, crashes=1)])

    assert len(custody) == 1
    assert custody.held_bytes == 20
    assert custody.crashes("one") == 1


def test_what_is_done_is_gone(custody: Custody) -> None:
    take(custody, 2)

    for tag in ("one", "one", "unknown"):
        custody.done(tag)

    assert custody.tags() == ["two"]
    assert held_by_the_server(custody) == {b"two"}
    assert next_tags(custody) == ["three", "four", "five"]


def test_what_is_given_back_is_served_first_and_in_its_old_order(custody: Custody) -> None:
    take(custody, 3)

    assert custody.give_back([*custody.tags(), "unknown"]) == 3

    assert len(custody) == 0
    assert held_by_the_server(custody) == set()
    assert next_tags(custody) == ["one", "two", "three", "four", "five"]


def test_what_others_have_taken_is_neither_done_nor_given_back(custody: Custody) -> None:
    take(custody, 2)
    steal(custody)

    custody.done("one")

    assert custody.give_back(["one", "two"]) == 0
    assert held_by_the_server(custody) == {b"one", b"two", b"three", b"four", b"five"}


def test_what_is_forgotten_stays_held_on_the_server(custody: Custody) -> None:
    one, _ = take(custody, 2)

    custody.forget([one.held])
    custody.done("one")

    assert custody.give_back(["one"]) == 0
    assert held_by_the_server(custody) == {b"one", b"two"}


def test_a_message_that_has_come_again_is_not_forgotten_with_its_older_claim(custody: Custody) -> None:
    (first,) = take(custody, 1)
    sweep(custody)
    (again,) = take(custody, 1)
    assert (again.held.tag, again.held.claim) == (first.held.tag, "worker:boot:2")

    custody.forget([first.held])
    assert custody.all() == [again.held]
    custody.forget([again.held])
    assert len(custody) == 0


def test_inspect_can_show_it(custody: Custody) -> None:
    take(custody, 1)

    assert dumps({"custody": custody}) == '{"custody": {"held": 1}}'


def test_threads_that_take_and_let_go_at_once_leave_the_size_right(custody: Custody) -> None:
    def take_and_forget(name: str) -> None:
        for number in range(300):
            taken = made_up(f"{name}-{number}", number)
            custody.take([taken])
            custody.forget([taken.held])

    threads = [threading.Thread(target=take_and_forget, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(custody) == 0
    assert custody.held_bytes == 0
