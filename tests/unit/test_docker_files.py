"""What docker/Dockerfile and its locks promise; tests/image/image_check.py builds it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from worker.settings import ENV_PREFIX, Settings, env_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FINAL = ("cpu", "gpu")


def read_stages() -> dict[str, str]:
    """The Dockerfile's stages by their names, each with what it says, continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)[1:]
    return {name: f"FROM {base}\n{body}" for base, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


STAGES = read_stages()


def pins(name: str) -> dict[str, set[str]]:
    """The releases that a lock pins: several of one package where they differ by version of Python."""
    found: dict[str, set[str]] = {}
    for package, release in re.findall(r"^([a-z0-9._-]+)(?:\[[^]]*])?==(\S+)", lock(name), flags=re.MULTILINE):
        found.setdefault(package, set()).add(release)
    return found


def lock(name: str) -> str:
    return (DOCKER / "requirements" / name).read_text()


def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", DOCKER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_cpu_image_is_what_is_built_by_default() -> None:
    assert list(STAGES)[-2:] == ["gpu", "cpu"]
    assert all(STAGES[name].startswith("FROM common\n") for name in FINAL)


def test_each_stage_declares_the_arguments_that_it_uses() -> None:
    """Engines differ in whether a stage inherits them."""
    used = {
        name: set(re.findall(r"\$\{?(EXTRAS|OCR_PROFILE|VERSION|REVISION)\b", body)) for name, body in STAGES.items()
    }

    assert used["cpu-packages"]
    assert {
        name: found - declared(STAGES[name]) for name, found in used.items() if found - declared(STAGES[name])
    } == {}


def declared(stage: str) -> set[str]:
    return set(re.findall(r"^ARG (\w+)", stage, flags=re.MULTILINE))


def test_every_option_exists() -> None:
    named = set(re.findall(rf"{ENV_PREFIX}[A-Z0-9_]+", "".join(STAGES.values())))

    assert named
    assert named <= {env_name(field) for field in Settings.model_fields}


def test_the_image_runs_the_worker_as_an_ordinary_user_below_an_init() -> None:
    common = STAGES["common"]

    assert re.findall(r"^USER (.*)$", "".join(STAGES.values()), flags=re.MULTILINE) == ["10001:10001"]
    assert "USER 10001:10001" in common
    assert 'ENTRYPOINT ["/usr/bin/tini", "--", "batchmill"]' in common
    assert 'CMD ["worker"]' in common
    assert "STOPSIGNAL SIGTERM" in common


def test_health_and_metrics_are_served_where_the_image_says() -> None:
    assert "EXPOSE 9464" in STAGES["common"]
    assert "BATCHMILL_HTTP_PORT=9464" in STAGES["common"]


def test_the_label_tells_the_projects_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert f"ARG VERSION={version}" in STAGES["common"]
    assert f"image: batchmill:{version}\n" in (DOCKER / "compose.yaml").read_text()


def test_nothing_in_the_image_reports_to_the_maker_of_onnx_runtime() -> None:
    assert "ORT_DISABLE_TELEMETRY=1" in STAGES["tools"]
    assert "ORT_DISABLE_TELEMETRY=1" in STAGES["common"]


def test_the_image_holds_locked_packages_only_and_a_list_of_them() -> None:
    installs = re.findall(r"pip [^&]*?install([^&]*)", "".join(STAGES.values()))

    assert installs
    assert all("--require-hashes" in options or "--no-index" in options for options in installs)
    assert all("--output-file /opt/batchmill/sbom.json" in STAGES[f"{name}-packages"] for name in FINAL)


@pytest.mark.parametrize("name", [path.name for path in sorted((DOCKER / "requirements").glob("*.txt"))])
def test_every_pin_has_hashes(name: str) -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", lock(name), flags=re.MULTILINE).strip())

    assert entries
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", ["worker.txt", "build.txt", "ocr.txt"])
def test_image_and_development_use_the_same_releases(name: str) -> None:
    assert pins(name).items() <= pins("dev.txt").items()


def test_the_gpu_image_differs_in_the_runtime_and_its_libraries_only() -> None:
    cpu, gpu = pins("worker.txt"), pins("gpu.txt")
    shared = cpu.keys() & gpu.keys()
    added = {name for name in gpu.keys() - cpu.keys() if not name.startswith("nvidia-")}

    assert added == {"onnxruntime-gpu"}
    assert cpu.keys() - gpu.keys() == {"onnxruntime"}
    assert {name for name in shared if gpu[name] != cpu[name]} == set()


def test_the_lock_for_documents_adds_what_the_extra_names_and_contradicts_no_other() -> None:
    ocr = pins("ocr.txt")

    assert ocr.keys() >= {"opencv-python-headless", "pillow", "pypdfium2"}
    for other in map(pins, ("worker.txt", "gpu.txt", "build.txt")):
        assert {name for name in ocr.keys() & other.keys() if ocr[name] != other[name]} == set()
