"""Workers leave, run out of disk or die of a row in the midst of a bulk run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from schemas.names import QUEUE_BULK
from tests.faults.bulk import compared
from tests.services import wait_until
from worker import keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.bulk import BulkTrial

REPLACED_WITHIN_S: Final = 20.0
DISK_BYTES: Final = 4 * 1024 * 1024
MAX_CRASHES: Final = 3
MOUNT, UNMOUNT = (shutil.which(program) or program for program in ("mount", "umount"))
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, which is where the workers write their parts first."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        [MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        assert not (os.environ.get("CI") and os.geteuid() == 0), f"CI must mount a tmpfs: {mounted.stderr.decode()}"
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield disk
    finally:
        subprocess.run([UNMOUNT, "-l", str(disk)], check=True)


@pytest.mark.fault("bulk-sigterm")
def test_workers_that_are_replaced_in_midst_of_their_shards_leave_them_to_others(bulk: BulkTrial) -> None:
    bulk.start(2)
    output = bulk.send()

    for name in ("a", "b", "a")[: bulk.trial.pick(short=1, full=3)]:
        seen = bulk.parts(output)
        wait_until(lambda seen=seen: bulk.parts(output) > seen or bulk.done(), 60, "it works")  # type: ignore[misc]
        began_s = time.monotonic()
        assert bulk.trial.fleet.replace(name) == 0
        assert time.monotonic() - began_s < REPLACED_WITHIN_S

    bulk.assert_same_as_without_faults()


@pytest.mark.fault("bulk-disk-full")
def test_a_worker_without_room_for_its_part_waits_for_some(bulk: BulkTrial, small_disk: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(small_disk))
        bulk.start(1, bulk_slots=1)
    output = bulk.send()
    wait_until(lambda: bulk.parts(output), 60, "the disk is in use")
    filler = small_disk / "filler"
    wait_until(lambda: _fill(filler) and "bulk.retrying" in bulk.trial.fleet.lines, 60, "a part has no room")
    filler.unlink()

    bulk.assert_same_as_without_faults(120)


@pytest.mark.fault("bulk-poison", deadly=True)
def test_a_row_that_kills_its_worker_costs_its_own_shard_only(bulk: BulkTrial) -> None:
    shard_rows = bulk.lake.shard_rows
    row = 2 * shard_rows + shard_rows // 2
    clean = bulk.reference
    bulk.lake = replace(bulk.lake, folder="poisoned").fill("sleep5", poison={row: "segfault"})
    bulk.start(2, max_crashes=MAX_CRASHES)

    output = bulk.lake.new_output()
    bulk.classify(output)
    with bulk.trial.trickle(5, "sleep5"):
        wait_until(lambda: _dead(bulk), 120, "the shard is given up")
        (dead,) = _dead(bulk)
        plan = bulk.plan(output)
        wait_until(lambda: bulk.parts(output) == len(plan.shards) - 1, 120, "all other parts are there")
    bulk.wait_idle()
    bulk.trial.account().assert_clean()
    bulk.reader.close()

    assert not bulk.reader.violations, bulk.reader.violations[:5]
    assert not {"manifest.json", "_SUCCESS"} & bulk.lake.names(output)
    assert "dead_lettered" in str(bulk.end_of(dead))
    shard = plan.shards[int(dead.split(":")[1])]
    first = shard.start + sum(file.rows for file in plan.inputs[: shard.file])
    assert first <= row < first + shard.rows
    expected = [*clean.result[:first], *clean.result[first + shard.rows :]]
    assert compared(bulk.lake.rows_of_parts(output), expected) == (0, 0, 0)


def _dead(bulk: BulkTrial) -> list[str]:
    with bulk.trial.server.client() as client:
        return [key.decode() for key in client.hkeys(keys.dead(QUEUE_BULK))]


def _fill(path: Path) -> bool:
    """Take what room there is, that of a part just removed too."""
    with suppress(OSError), path.open("ab", buffering=0) as filler:
        filler.write(b"\0" * shutil.disk_usage(path.parent).free)
    return True
