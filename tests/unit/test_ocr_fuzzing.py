"""Damaged documents of every kind: no crash, no hang, no more memory than decoding may have.

A few seconds by default, a minute in CI; `FUZZ_S=600 pytest tests/unit/test_ocr_fuzzing.py` for ten minutes. A case is
made again from its number: `python -m tests.fuzzing NUMBER 0.001`.
"""

from __future__ import annotations

import os
import subprocess
import sys

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


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_damage_ends_the_process_that_decodes(batch: int) -> None:
    command = [sys.executable, "-m", "tests.fuzzing", str(batch * BATCH_STRIDE), str(SECONDS / BATCHES)]
    folder = [str(SHARED)] if SHARED.is_dir() and SECONDS > 60 else []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command + folder, cwd=ROOT, env=environment, capture_output=True, check=False)
    *cases, last = ended.stdout.decode().splitlines()

    assert ended.returncode == 0, f"case {last} ended with {ended.returncode}: {ended.stderr.decode()[-2000:]}"
    assert len(cases) > len(DOCUMENTS)  # each was damaged: the cases take turns
    assert int(last.split()[1]) < MOST_MIB
