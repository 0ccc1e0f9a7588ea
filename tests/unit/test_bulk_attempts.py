"""A shard that has not ended is sent again under its id, one that has under the next."""

from __future__ import annotations

from tasks.bulk.attempts import ATTEMPTS_MAX, open_attempts, task_id


def attempts(*over: str, shards: range = range(3)) -> dict[int, tuple[int, str]]:
    return open_attempts("job", shards, lambda ids: {name for name in ids if name in over})


def test_shards_that_were_never_sent_have_their_first_attempt() -> None:
    assert attempts() == {0: (0, "job:0:0"), 1: (0, "job:1:0"), 2: (0, "job:2:0")}


def test_a_shard_that_has_ended_has_the_next_attempt_that_has_not() -> None:
    assert attempts("job:1:0", "job:1:1", "job:2:0") == {0: (0, "job:0:0"), 1: (2, "job:1:2"), 2: (1, "job:2:1")}


def test_an_attempt_after_one_that_has_not_ended_is_not_looked_at() -> None:
    assert attempts("job:0:1", shards=range(1)) == {0: (0, "job:0:0")}


def test_nothing_is_asked_about_no_shards() -> None:
    assert attempts(shards=range(0)) == {}


def test_a_shard_that_has_ended_a_thousand_times_is_given_up() -> None:
    assert open_attempts("job", [0, 1], lambda ids: [name for name in ids if name.startswith("job:0:")]) == {
        1: (0, task_id("job", 1, 0))
    }
    assert ATTEMPTS_MAX == 1_000
