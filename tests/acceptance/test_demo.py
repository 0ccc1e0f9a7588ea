import re
import subprocess
import sys

import pytest

from tests.services import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first run downloads weights and builds the default model
def test_the_demo_labels_every_ticket_without_a_terminal_and_shows_how() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tasks.cli", "demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    count = re.search(r"(\d+) of (\d+) tickets came back with a label", done.stdout)
    assert count
    assert count[1] == count[2]
    assert int(count[1]) >= 200
    assert len(re.findall(r"^demo-\d+ +(en|de) ", done.stdout, re.MULTILINE)) == int(count[1])
    assert all(word in done.stdout for word in ("throughput", "batches", "padding waste"))
