"""`make bench BENCH=ocr`: this project's OCR profiles beside RapidOCR on the same weights, one thread each.

Every contestant is a process that stays; page after page all read in turn, so that all meet the same weather on a
shared machine. Run as `python -m tests.benchmarks.ocr_bench`; BENCH_ROUNDS (3) shortens it for a quick look.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tasks.ocr.build import build_ocr
from tests.benchmarks import envs, report
from tests.benchmarks.models import REPOSITORY
from tests.benchmarks.ocr_measures import (
    FASTER_PADDLE,
    FASTER_PADDLE_TINY,
    GOALS,
    PROFILES,
    RAPIDOCR,
    RAPIDOCR_CLS_OFF,
    TESSERACT,
    Read,
    measures,
)
from tests.benchmarks.ocr_pages import SCANS, BenchDocument, bench_documents
from worker.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.ocr_measures import Round

BENCH_DIR = REPOSITORY / ".bench"
PEERS = Path(__file__).with_name("peers")
LANGUAGES = ("deu", "eng")
ROUNDS = 3
PLAIN_WIDTH = 120
NAMED = ("numpy", "onnxruntime", "opencv-python-headless", "pillow", "rapidocr", "faster-paddle")

Json = dict[str, Any]  # what a contestant answers; Any as it is parsed JSON


class Contestant:
    """A process that reads the pages it is told. Use as a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=_one_thread()
        )

    def read(self, path: Path) -> Json:
        """Have a file read. Blocks until it is."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a contestant needs both pipes")
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contestant ended while it read {path.name}; see above")
        answer: Json = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@contextmanager
def running(command: Sequence[str]) -> Iterator[Contestant]:
    """Start a contestant, and end it."""
    contestant = Contestant(command)
    try:
        yield contestant
    finally:
        contestant.close()


def one_round(contestants: Mapping[str, Contestant], documents: Sequence[BenchDocument]) -> Round:
    """Let all contestants read all documents, page after page in turn."""
    reads: Round = {who: {} for who in contestants}
    for document in documents:
        answers: dict[str, list[Json]] = {who: [] for who in contestants}
        for page in document.pages:
            for who, contestant in contestants.items():
                answers[who].append(contestant.read(page))
        for who, pages in answers.items():
            lines = tuple(line for page in pages for line in page["lines"])
            reads[who][document.name] = Read(lines, sum(page["cpu_s"] for page in pages))
    return reads


def peak_rss_gib(command: Sequence[str]) -> float:
    """Return what reading every shared file takes, decoding included."""
    with running(command) as contestant:
        peaks = [contestant.read(path)["peak_kib"] for path in sorted(SCANS.glob("*.*")) if path.suffix != ".tsv"]
    return max(peaks, default=0) / 2**20


def tesseract(console: Console) -> dict[str, list[str]]:
    """Return how Tesseract is run; nothing, said aloud, where it or a language is not installed."""
    found = shutil.which("tesseract")
    known = subprocess.run([found, "--list-langs"], check=True, capture_output=True, text=True).stdout if found else ""
    missing = [] if found else ["tesseract-ocr"]
    missing += [f"tesseract-ocr-{language}" for language in LANGUAGES if language not in known.split()]
    if missing:
        console.print(f"Tesseract is left out: apt-get install {' '.join(missing)}")
        return {}
    return {TESSERACT: [sys.executable, str(PEERS / "tesseract_reader.py"), "+".join(LANGUAGES)]}


def tesseract_version() -> dict[str, str]:
    """Return Tesseract's version by name; nothing where it is not installed."""
    found = shutil.which("tesseract")
    if found is None:
        return {}
    said = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
    return {"tesseract": said.split()[1]}


def main() -> None:
    """Read, print and save the figures."""
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    machine, cache = report.this_machine(), load().cache_dir
    rapid, faster_paddle = (str(envs.python_of(name, BENCH_DIR)) for name in ("rapidocr", "faster-paddle"))
    commands = {
        RAPIDOCR: [rapid, str(PEERS / "rapid_reader.py"), "default"],
        RAPIDOCR_CLS_OFF: [rapid, str(PEERS / "rapid_reader.py"), "cls-off"],
        FASTER_PADDLE: [faster_paddle, str(PEERS / "faster_paddle_reader.py"), "small"],
        FASTER_PADDLE_TINY: [faster_paddle, str(PEERS / "faster_paddle_reader.py"), "tiny"],
        **tesseract(console),
        **{name: _ours(build_ocr(cache, name, console.print)) for name in PROFILES},
    }
    documents = bench_documents(BENCH_DIR / "ocr-pages", cache / "wheels")
    with ExitStack() as stack:
        contestants = {who: stack.enter_context(running(command)) for who, command in commands.items()}
        for contestant in contestants.values():  # what only the first run pays for
            contestant.read(documents[0].pages[0])
        rounds = [one_round(contestants, documents) for _ in range(int(os.environ.get("BENCH_ROUNDS", ROUNDS)))]
    figures = measures(rounds, documents, peak_rss_gib(commands["accurate"]))
    report.print_figures(console, figures, GOALS)
    versions = {
        "batchmill": envs.versions_of(Path(sys.executable), NAMED),
        "rapidocr": envs.versions_of(Path(rapid), NAMED),
        "faster-paddle": envs.versions_of(Path(faster_paddle), NAMED),
        "tesseract": tesseract_version(),
    }
    report.save(BENCH_DIR / "ocr.json", machine, versions, figures, list(_records(rounds)))
    console.print(f"Saved {BENCH_DIR / 'ocr.json'}")


def _ours(directory: Path) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.ocr_reader", str(directory)]


def _one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _records(rounds: Sequence[Round]) -> Iterator[Json]:
    for number, of in enumerate(rounds):
        for who, reads in of.items():
            for name, read in reads.items():
                yield {"round": number, "who": who, "document": name, **asdict(read)}


if __name__ == "__main__":
    main()
