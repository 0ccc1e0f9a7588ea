"""Checks of everything a worker needs, for `batchmill doctor`: one finding each, with the way to mend it.

It reads the machine (Python, packages, CPUs), asks the broker and runs one inference. What a model is for and
where it is found is passed in: this module knows no kind of task.
"""

import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from worker.errors import BatchmillError
from worker.jobs import Cancellation, Model
from worker.models.cpu import available_cpus
from worker.ops import broker
from worker.ops.findings import Finding, fail, ok, warn
from worker.redaction import exception_text
from worker.settings import Settings

OLDEST_PYTHON: Final = (3, 11)
# The pool and the delivery touch the internals of these two: one minor version at a time.
PINNED_MINORS: Final = {"celery": "5.7.", "kombu": "5.7."}
PACKAGES: Final = ("celery", "kombu", "redis", "onnxruntime", "numpy", "tokenizers", "pydantic", "structlog")
_PROBE_TOKENS: Final = 8
_REBUILD: Final = "the model's files are broken: build or export it again"


def examine(settings: Settings, open_model: Callable[[], Model]) -> Iterator[Finding]:
    """Yield every finding as it is made; blocks on the broker and the model for seconds at most.

    Args:
        settings: what the worker would run with.
        open_model: loads the model of `settings`; its errors become findings.

    Raises:
        ConfigError: the broker's address cannot be parsed.
    """
    yield _judge_python(sys.version_info[:2])
    yield from _judge_packages(_installed_version)
    yield _judge_threads(settings.runners, available_cpus())
    yield from broker.examine(settings)
    yield from _examine_model(open_model)


def _judge_python(running: tuple[int, ...]) -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"
    if running < OLDEST_PYTHON:
        return fail("python", text, "run Python 3.11 or newer")
    return ok("python", text)


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _judge_packages(installed: Callable[[str], str | None]) -> Iterator[Finding]:
    found = {package: installed(package) for package in PACKAGES}
    for package, number in found.items():
        if number is None:
            yield fail("packages", f"{package} is not installed", "pip install batchmill again, with dependencies")
        elif not number.startswith(PINNED_MINORS.get(package, "")):
            wanted = f"{PINNED_MINORS[package]}*"
            yield fail("packages", f"{package} {number} is not supported", f"pip install '{package}=={wanted}'")
    yield ok("packages", ", ".join(f"{package} {number}" for package, number in found.items() if number))


def _judge_threads(runners: int, cpus: int) -> Finding:
    if runners > cpus:
        return warn(
            "threads",
            f"{runners} runners share {cpus} CPUs: they only take turns",
            "set BATCHMILL_RUNNERS=0 (one per CPU of the cgroup), or allow more CPUs",
        )
    return ok("threads", f"{runners or cpus} runners on {cpus} CPUs of the cgroup")


def _examine_model(open_model: Callable[[], Model]) -> Iterator[Finding]:
    started_s = time.perf_counter()
    try:
        model = open_model()
    except BatchmillError as error:
        yield fail("model", str(error), "batchmill model build, or set BATCHMILL_MODEL")
        return
    except (ImportError, OSError) as error:
        yield fail("model", f"cannot be loaded: {error}", "pip install batchmill again, with dependencies")
        return
    yield _describe(model, time.perf_counter() - started_s)
    yield _probe(model)


def _describe(model: Model, load_s: float) -> Finding:
    info = model.info
    made = f"{info['name']} {info['version']} ({info['precision']}, sha256 {info['sha256'][:12]})"
    return ok("model", f"{made} loaded in {load_s:.2f} s")


def _probe(model: Model) -> Finding:
    started_s = time.perf_counter()
    where = f"{model.info['provider']}, {model.info['runtime']}"
    try:
        (output,) = model.run(model.sample(1, _PROBE_TOKENS), Cancellation())
    except Exception as error:  # noqa: BLE001 - whatever a broken model raises is this check's finding
        return fail("inference", f"{where}: {type(error).__name__}: {exception_text(error)}", _REBUILD)
    if isinstance(output, BatchmillError):
        return fail("inference", f"{where}: {output}", _REBUILD)
    ran_ms = (time.perf_counter() - started_s) * 1000
    return ok("inference", f"{where}: one of {_PROBE_TOKENS} tokens in {ran_ms:.1f} ms")
