"""Live and ready, fact by fact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worker.ops.health import MARGIN_S, Facts, Limits, live, ready

LIMITS = Limits(call_s=80, broker_s=12, fetch_s=30, loop_s=60)
WELL = Facts(unfetched_s={"classify": 5.0, "bulk": 0.1})
STARTING = Facts(starting="it loads its models", loop_silent_s=900, is_connected=False, unheard_s=900)


@pytest.mark.parametrize(
    ("facts", "is_live", "is_ready"),
    [
        pytest.param(WELL, True, True, id="idle or busy, consuming"),
        pytest.param(STARTING, True, False, id="starting, however long"),
        pytest.param(replace(STARTING, broken="the finisher's thread died"), False, False, id="broken while starting"),
        pytest.param(replace(WELL, broken="a model call is stuck"), False, False, id="broken"),
        pytest.param(replace(WELL, broken="a model call is stuck", draining=True), False, False, id="broken, ending"),
        pytest.param(replace(WELL, is_connected=False), True, False, id="connection lost"),
        pytest.param(
            replace(WELL, is_connected=False, unheard_s=900, unfetched_s={"classify": 900}),
            *(True, False),
            id="broker down for long",
        ),
        pytest.param(replace(WELL, unheard_s=12), True, True, id="broker heard within a lease"),
        pytest.param(replace(WELL, unheard_s=12.1), True, False, id="broker silent for a lease"),
        pytest.param(
            replace(WELL, unheard_s=40, unfetched_s={"classify": 40}), True, False, id="a frozen broker is no fault"
        ),
        pytest.param(replace(WELL, unserved=("bulk",)), True, False, id="has not begun to consume"),
        pytest.param(replace(WELL, unfetched_s={"classify": 30}), True, True, id="fetcher just within its time"),
        pytest.param(replace(WELL, unfetched_s={"classify": 31, "bulk": 0}), False, False, id="fetcher hangs"),
        pytest.param(
            replace(WELL, draining=True, unfetched_s={"classify": 900}, dead_threads=("runner-0",), loop_silent_s=900),
            *(True, False),
            id="draining",
        ),
        pytest.param(replace(WELL, loop_silent_s=61), False, False, id="event loop hangs"),
        pytest.param(replace(WELL, loop_silent_s=61, is_connected=False), False, False, id="hangs while reconnecting"),
        pytest.param(replace(WELL, dead_threads=("keeper",)), False, False, id="thread gone"),
        pytest.param(replace(WELL, longest_call_s=80 + MARGIN_S), True, True, id="batch within limit and grace"),
        pytest.param(replace(WELL, longest_call_s=81 + MARGIN_S), False, False, id="batch beyond"),
        pytest.param(
            replace(WELL, longest_call_s=81 + MARGIN_S, draining=True), False, False, id="batch beyond, while draining"
        ),
    ],
)
def test_a_worker_is_live_unless_a_restart_would_help_and_ready_if_it_takes_messages(
    facts: Facts, *, is_live: bool, is_ready: bool
) -> None:
    assert (live(facts, LIMITS).ok, ready(facts, LIMITS).ok) == (is_live, is_ready)


def test_reasons_name_what_is_wrong() -> None:
    facts = replace(WELL, unfetched_s={"classify": 44.6}, dead_threads=("runner-0",))
    assert live(facts, LIMITS).reasons == ("thread runner-0 has ended", "nothing has fetched from classify for 45 s")
    assert ready(STARTING, LIMITS).reasons == ("starting: it loads its models",)
    assert ready(replace(WELL, draining=True), LIMITS).reasons == ("draining: it was told to stop",)
