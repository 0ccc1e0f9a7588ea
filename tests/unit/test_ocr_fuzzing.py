"""Damaged documents of every kind: no crash, no hang, no more memory than decoding may have.

A few seconds of CPU by default, a minute in CI; `FUZZ_S=600 pytest tests/unit/test_ocr_fuzzing.py` for ten minutes.
Processes that run at once share them. A case is made again from its number: `python -m tests.fuzzing NUMBER 0.001`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.ocr.formats import Format, sniff
from tests.documents import DOCUMENTS
from tests.fuzzing import seeds
from tests.peaks import ROOT

SECONDS = float(os.environ.get("FUZZ_S", "60" if os.environ.get("CI") else "16"))
BATCHES = 2
SHARED = ROOT.parent / "shared" / "data" / "ocr"
BATCH_STRIDE = 10_000_000
MOST_MIB = 500


def test_a_document_of_every_format_and_kind_is_damaged() -> None:
    corpus = seeds(None)
    assert {sniff(data) for data in corpus} == set(Format)
    assert len(corpus) > len(DOCUMENTS)


def fuzz(batch: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.fuzzing", str(batch * BATCH_STRIDE), str(SECONDS / BATCHES)]
    folder = [str(SHARED)] if SHARED.is_dir() and SECONDS > 60 else []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command + folder, cwd=ROOT, env=environment, capture_output=True, check=False)


@pytest.fixture(scope="module")
def ended() -> list[subprocess.CompletedProcess[bytes]]:
    """The process of each batch; they have run at once."""
    with ThreadPoolExecutor(BATCHES) as pool:
        return list(pool.map(fuzz, range(BATCHES)))


@pytest.mark.slow
@pytest.mark.timeout(4 * SECONDS + 120)  # on a machine with half a core to spare for it
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_damage_ends_the_process_that_decodes(ended: list[subprocess.CompletedProcess[bytes]], batch: int) -> None:
    process = ended[batch]
    *cases, last = process.stdout.decode().splitlines()

    assert process.returncode == 0, f"case {last} ended with {process.returncode}: {process.stderr.decode()[-2000:]}"
    assert len(cases) > len(DOCUMENTS)  # each was damaged: the cases take turns
    assert int(last.split()[1]) < MOST_MIB
