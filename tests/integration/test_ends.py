"""Which task ids have ended, by what the ledger and the result backend leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker import keys
from worker.ops import jobs
from worker.ops.ends import AT_ONCE, ended

if TYPE_CHECKING:
    import redis


def test_results_ends_and_cancels_count_and_what_waits_or_runs_does_not(client: redis.Redis) -> None:
    client.flushall()
    client.set(f"{keys.RESULT_PREFIX}with a result", b'{"status": "SUCCESS", "result": null}')
    client.set(f"{keys.JOB_PREFIX}done", b"D")
    client.set(f"{keys.JOB_PREFIX}held", b"H worker:boot:1 bulk tag 0")
    client.set(f"{keys.JOB_PREFIX}free", b"F 0")
    jobs.cancel(client, ["cancelled"], 100)

    found = ended(client, ["with a result", "done", "held", "free", "cancelled", "unknown"])

    assert found == {"with a result", "done", "cancelled"}


def test_any_number_of_ids_is_asked_for(client: redis.Redis) -> None:
    client.flushall()
    last = f"id {2 * AT_ONCE}"
    client.set(f"{keys.JOB_PREFIX}{last}", b"D")

    assert ended(client, (f"id {number}" for number in range(2 * AT_ONCE + 1))) == {last}
    assert ended(client, []) == frozenset()
