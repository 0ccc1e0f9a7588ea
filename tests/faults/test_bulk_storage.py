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

DOWN_S: Final = 2.0
MIX: Final = {
    Fault.THROTTLE: 0.2,
    Fault.CUT: 0.05,
    Fault.RESET: 0.05,
    Fault.LOSE_ANSWER: 0.05,
    Fault.TRICKLE: 0.05,
    Fault.FLIP_REQUEST: 0.05,
    Fault.FLIP_ANSWER: 0.03,
}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def proxy(bulk: BulkTrial) -> Iterator[S3Proxy]:
    """What the workers of the trial find in place of the S3 server."""
    with S3Proxy(bulk.lake.server.port) as started:
        yield started
        bulk.trial.fleet.stop()  # before the proxy


def start_behind(bulk: BulkTrial, proxy: S3Proxy, workers: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bulk.lake.server.environment(proxy.endpoint).items():
            patch.setenv(name, value)
        bulk.start(workers)


def is_any(_method: str, _headers: Mapping[str, str]) -> bool:
    return True


def is_checked(method: str, headers: Mapping[str, str]) -> bool:
    """Whether it is a range of a file. HTTP has no checksum for the others' lists and headers, but TLS does."""
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
        pytest.param({Fault.FLIP_ANSWER: 0.1}, id="flip-range", marks=FULL_ONLY),
    ],
)
def test_what_the_network_does_to_requests_changes_nothing(
    bulk: BulkTrial, proxy: S3Proxy, faults: Mapping[Fault, float]
) -> None:
    """A page whose bits have flipped is noticed by its checksum, and read again; see `is_checked`."""
    for fault, share in faults.items():
        proxy.share(fault, share, of=is_checked if fault is Fault.FLIP_ANSWER else is_any)
    start_behind(bulk, proxy, bulk.trial.pick(short=1, full=2))

    bulk.send(planned=False)

    bulk.assert_same_as_without_faults(240)


@pytest.mark.fault("bulk-s3-kill")
def test_an_s3_server_that_is_killed_and_comes_back_changes_nothing(bulk: BulkTrial) -> None:
    bulk.start(bulk.trial.pick(short=1, full=2))

    output = bulk.send()
    wait_until(lambda: bulk.parts(output), 60, "the first part is there")
    bulk.lake.server.kill()
    time.sleep(DOWN_S)
    bulk.lake.server.start()

    bulk.assert_same_as_without_faults(120)
