"""Environments of their own for the peers: pinned, hashed, built once under `.bench/envs/`.

celery-batches pins an older Celery than this project needs, so no peer shares the worker's environment. An
environment is rebuilt when its requirements file or the interpreter changes. The module knows pip and venv,
no peer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIREMENTS = Path(__file__).parent / "requirements"
NAMED = ("celery", "kombu", "redis", "celery-batches", "onnxruntime", "tokenizers", "numpy", "pyarrow", "ray")

_VERSIONS = """
import importlib.metadata, json, platform, sys
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try: versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: pass
print(json.dumps(versions))
"""


def python_of(name: str, bench_dir: Path) -> Path:
    """The interpreter of the environment `name`, built when missing or out of date.

    Raises:
        CalledProcessError: pip could not install the pinned versions.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    directory = bench_dir / "envs" / name
    python = directory / "bin" / "python"
    stamp = directory / "built-from"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        install = ["-m", "pip", "install", "-qq", "--require-hashes", "-r", str(requirements)]
        subprocess.run([python, *install], check=True)
        stamp.write_text(wanted)
    return python


def versions_of(python: Path, named: Sequence[str] = NAMED) -> dict[str, str]:
    """Versions of the interpreter and of the packages that matter here, where installed."""
    answer = subprocess.run([python, "-c", _VERSIONS, *named], check=True, capture_output=True)
    found: dict[str, str] = json.loads(answer.stdout)
    return found
