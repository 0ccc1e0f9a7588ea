"""How many CPUs this process may really use, which is what decides the number of runner threads.

Inside a container the machine's CPU count says nothing: the cgroup's quota and the process's affinity do. A
count that is too high makes the kernel throttle every thread of the worker, the consumer loop included. This
module does not know what the CPUs are used for.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available_cpus(root: Path = Path("/")) -> int:
    """Return the whole CPUs that quota (cgroup v2 and v1) and affinity leave, at least 1.

    A quota of 1.5 CPUs counts as 1: two busy threads would be throttled a quarter of the time, and the half
    CPU is what the worker's own threads need.

    Args:
        root: where `proc` and `sys` are found; a test puts its own tree there.
    """
    quota = min(_quotas(root), default=math.inf)
    return max(1, math.floor(min(quota, _affinity())))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):  # absent on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limit, in CPUs, of every cgroup between this process and the root; the smallest one binds."""
    mount = root / "sys/fs/cgroup"
    for controllers, group in _groups(root):
        if not controllers:
            yield from filter(None, (_quota_v2(level) for level in _levels(mount, group)))
        elif "cpu" in controllers.split(","):
            yield from filter(None, (_quota_v1(level) for level in _levels(mount / "cpu", group)))


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """Yield `(controllers, path)` of each line of /proc/self/cgroup; v2 has one line, without controllers."""
    text = _read(root / "proc/self/cgroup") or ""
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        yield controllers, group


def _levels(mount: Path, group: str) -> Iterator[Path]:
    """Yield the group's directory and all above it, up to the mount.

    A container often sees its own group as the mount while `/proc/self/cgroup` still names the host's path,
    which then leads nowhere; the last level covers that.
    """
    path = PurePosixPath(group.lstrip("/"))
    for level in (path, *path.parents):
        yield mount / level


def _quota_v2(directory: Path) -> float | None:
    """Read `cpu.max`: quota and period in microseconds, or `max`."""
    words = (_read(directory / "cpu.max") or "max").split()
    return None if words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(directory: Path) -> float | None:
    """Read `cpu.cfs_quota_us` (-1 = none) over `cpu.cfs_period_us`."""
    quota_us = int(_read(directory / "cpu.cfs_quota_us") or -1)
    period_us = int(_read(directory / "cpu.cfs_period_us") or 0)
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None
