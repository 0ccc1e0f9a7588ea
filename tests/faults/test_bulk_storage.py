"""The S3 server throttles, cuts, drips, resets and flips what a bulk run asks of it, or is killed itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.trial import FULL_ONLY
from tests.s3_proxy import Fault, S3Proxy
from tests.services import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.faults.bulk import BulkTrial

DOWN_S: Final = 3.0
MIX: Final = {
    Fault.THROTTLE: 0.2,
    Fault.CUT: 0.05,
    Fault.RESET: 0.05,
    Fault.LOSE_ANSWER: 0.05,
    Fault.TRICKLE: 0.05,
    Fault.FLIP_REQUEST: 0.05,
}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def proxy(bulk: BulkTrial) -> Iterator[S3Proxy]:
    """What the workers of the trial find in place of the S3 server."""
    with S3Proxy(bulk.lake.server.port) as started:
        yield started
        bulk.trial.fleet.stop()  # before the proxy


def start_behind(bulk: BulkTrial, proxy: S3Proxy, *names: str, **settings: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bulk.lake.server.environment(proxy.endpoint).items():
            patch.setenv(name, value)
        bulk.start(*names, **settings)


def is_of_a_range(method: str, headers: Mapping[str, str]) -> bool:
    return method == "GET" and "range" in headers


@pytest.mark.fault("bulk-s3")
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(MIX, id="mix"),
        pytest.param({Fault.THROTTLE: 0.2}, id="throttle", marks=FULL_ONLY),
        pytest.param({Fault.CUT: 0.2}, id="cut", marks=FULL_ONLY),
        pytest.param({Fault.RESET: 0.2}, id="reset", marks=FULL_ONLY),
        pytest.param({Fault.LOSE_ANSWER: 0.2}, id="lose", marks=FULL_ONLY),
        pytest.param({Fault.DRIP: 0.02}, id="drip", marks=FULL_ONLY),
        pytest.param({Fault.FLIP_REQUEST: 0.2}, id="flip-request", marks=FULL_ONLY),
    ],
)
def test_what_the_network_does_to_a_request_changes_nothing(
    bulk: BulkTrial, proxy: S3Proxy, faults: Mapping[Fault, float]
) -> None:
    for fault, share in faults.items():
        proxy.share(fault, share)
    start_behind(bulk, proxy, "a", "b")

    bulk.send(planned=False)

    bulk.assert_same_as_without_faults(240)


@pytest.mark.fault("bulk-s3-flip-range")
def test_a_bit_that_flips_in_a_range_is_noticed_and_read_again(bulk: BulkTrial, proxy: S3Proxy) -> None:
    proxy.share(Fault.FLIP_ANSWER, 0.05, of=is_of_a_range)
    start_behind(bulk, proxy, "a", "b")

    bulk.send()

    bulk.assert_same_as_without_faults(240)


@pytest.mark.fault("bulk-s3-kill")
def test_an_s3_server_that_is_killed_and_comes_back_changes_nothing(bulk: BulkTrial) -> None:
    bulk.start("a", "b")

    output = bulk.send()
    wait_until(lambda: bulk.parts(output), 60, "the first part is there")
    bulk.lake.server.kill()
    time.sleep(DOWN_S)
    bulk.lake.server.start()

    bulk.assert_same_as_without_faults(120)
