"""The server answers, but refuses: full, read-only, without its scripts. Producers hear of it, workers go on after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.oracle import texts
from tests.services import free_port, wait_until

if TYPE_CHECKING:
    from tests.faults.trial import Trial

pytestmark = pytest.mark.timeout(300)


@pytest.mark.fault("server-full")
def test_at_maxmemory_producers_get_the_error_and_workers_go_on_when_there_is_room(trial: Trial) -> None:
    trial.fleet.start("a", max_batch_size=4)
    trial.books.send(texts(40, "sleep100"))
    wait_until(lambda: trial.runs_on("a"), what="the worker works")
    with trial.server.client() as client:
        client.config_set("maxmemory", "1mb")
        assert trial.books.send(texts(3, seed=1)) == [], "a full server takes nothing"
        time.sleep(7)  # longer than an idle wait lasts
        assert trial.books.send(texts(3, seed=2)) == []
        client.config_set("maxmemory", "0")
    start_s = time.monotonic()
    trial.books.send(texts(5, seed=3))

    trial.account().assert_clean()
    assert time.monotonic() - start_s < 25


@pytest.mark.fault("server-readonly")
def test_while_the_server_is_read_only_workers_pause(trial: Trial) -> None:
    trial.fleet.start("a", max_batch_size=4)
    trial.books.send(texts(40, "sleep100"))
    wait_until(lambda: trial.runs_on("a"), what="the worker works")
    with trial.server.client() as client:
        client.replicaof("127.0.0.1", free_port())  # nobody listens there
        assert trial.books.send(texts(3, seed=1)) == [], "a replica takes nothing"
        time.sleep(7)  # two leases
        client.replicaof("NO", "ONE")
    start_s = time.monotonic()
    trial.books.send(texts(5, seed=2))

    trial.account().assert_clean()
    assert time.monotonic() - start_s < 25


@pytest.mark.fault("script-flush")
def test_a_server_that_forgets_its_scripts_gets_them_again(trial: Trial) -> None:
    trial.fleet.start("a", "b", max_batch_size=4)
    with trial.trickle(30, "sleep20"), trial.server.client() as client:
        for _ in range(30):
            client.script_flush()
            time.sleep(0.1)

    trial.account().assert_clean()
