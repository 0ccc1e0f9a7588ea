"""What became of a document's first page, and what that took: `python -m tests.peaks FILE`, one file a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tasks.ocr.documents import open_document
from tasks.ocr.limits import DocumentLimits
from worker.errors import ItemFailed

ROOT = Path(__file__).parents[1]
KIB = 1024


def most_held_mib() -> int:
    """The most that this process has held, on Linux; `ru_maxrss` also has what its parent held when it started it."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) // KIB


def peak(path: Path) -> tuple[str, int]:
    """The shape of the first page or its error, and the most MiB that a process held for it."""
    command = [sys.executable, "-m", "tests.peaks", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    outcome, most = ended.stdout.decode().splitlines()
    return outcome, int(most)


def main() -> None:
    document = open_document(Path(sys.argv[1]).read_bytes(), DocumentLimits())
    try:
        outcome = str(document.page(0).image.shape)
    except ItemFailed as failed:
        outcome = failed.code.value
    sys.stdout.write(f"{outcome}\n{most_held_mib()}\n")


if __name__ == "__main__":
    main()
