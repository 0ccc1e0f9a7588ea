import os
from pathlib import Path

import pytest

from worker.models import cpu
from worker.models.cpu import available_cpus

AFFINITY = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

V2_NESTED = {"proc/self/cgroup": "0::/kube/pod/main\n"}
V1_NESTED = {"proc/self/cgroup": "7:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, AFFINITY, id="no cgroup: affinity"),
        pytest.param({"proc/self/cgroup": "0::/\n"}, AFFINITY, id="v2 without a cpu controller"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, AFFINITY, id="v2 unlimited"
        ),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1, id="v2 one CPU"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "25000 100000\n"}, 1, id="v2 a quarter is one"
        ),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1, id="v2 1.5 is one"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "99900000 100000\n"},
            AFFINITY,
            id="v2 quota above affinity",
        ),
        pytest.param(
            V2_NESTED | {"sys/fs/cgroup/kube/cpu.max": "100000 100000", "sys/fs/cgroup/kube/pod/main/cpu.max": "max"},
            1,
            id="v2 the parent's quota binds",
        ),
        pytest.param(V2_NESTED | {"sys/fs/cgroup/cpu.max": "100000 100000"}, 1, id="v2 own group is the mount"),
        pytest.param(
            V1_NESTED
            | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            1,
            id="v1 one CPU",
        ),
        pytest.param(
            V1_NESTED | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            AFFINITY,
            id="v1 unlimited",
        ),
    ],
)
def test_the_smallest_limit_decides(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert available_cpus(tmp_path) == expected


def test_affinity_binds_below_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("350000 100000\n")
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert available_cpus(tmp_path) == 3

    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda _: {5, 9}, raising=False)
    assert available_cpus(tmp_path) == 2


def test_this_machine_has_at_least_one_and_at_most_its_affinity() -> None:
    assert 1 <= available_cpus() <= AFFINITY
