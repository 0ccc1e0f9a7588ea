"""A fault run: one server, a fleet of workers and the books, fresh for each test.

`FAULTS=short` (the default) runs small numbers on Valkey, `FAULTS=full` all of them on Valkey and Redis, `FAULTS=long`
like `full`, but on Valkey only and with 100,000 jobs under the kills.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.oracle import Oracle
from tests.faults.report import Figures
from tests.faults.servers import Kind, Server, binary
from tests.faults.trial import FORM, Form, Trial

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

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
    started = Server(program, tmp_path, request.param).start()
    yield started
    started.stop()


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, server: Server, tiny_model: Path, oracle: Oracle, tmp_path: Path
) -> Iterator[Trial]:
    """A fault run, reported under the name in the test's mark. No worker may end by itself, unless `deadly=True`."""
    mark = request.node.get_closest_marker("fault")
    figures = Figures()
    with Trial(server, tiny_model, tmp_path, oracle, figures) as trial:
        yield trial
        exit_codes = [] if mark.kwargs.get("deadly") else list(trial.fleet.exit_codes)
    figures.holds = request.node.stash.get(PASSED, False) and not exit_codes
    variant = request.node.callspec.id.replace(server.kind, "").strip("-")
    figures.write(f"{'-'.join(filter(None, (mark.args[0], variant)))}@{server.kind}")
    assert not exit_codes, f"workers have ended by themselves: {exit_codes}"
