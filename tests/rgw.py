"""A real Ceph RGW, an older and stricter S3 server: one monitor, one OSD that keeps all in memory, and the gateway.

Debian's packages: `radosgw ceph-mon ceph-osd`. There is no manager, which only counts. Up in about a second, and in
twelve without the `paxos` options, because pools are made one after another; 140 MB in all. It needs no root, and
nothing in /etc/ceph.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from typing import Final

from tests.s3_servers import ACCESS_KEY, SECRET_KEY, START_TIMEOUT_S, StoreServer
from tests.services import free_port

PROGRAMS: Final = ("radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd", "monmaptool")
OBJECTS_BYTES: Final = 1 << 30
_MODES: Final = ("mon client", "client", "cluster", "service", "mon cluster", "mon service")


class RadosGateway(StoreServer):
    """RGW. Its objects end with it."""

    def _launch(self) -> None:
        fsid, monitor = str(uuid.uuid4()), f"v2:127.0.0.1:{free_port()}"
        for name in ("monitor", "osd"):
            (self._directory / name).mkdir()
        self._configure(fsid, monitor)
        monmap = str(self._directory / "monmap")
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[{monitor}]", monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._spawn(["ceph-mon", "-f", "-i", "a"], self._variables)
        self._run("ceph", "osd", "create")
        self._run("ceph-osd", "--mkfs", "-i", "0")
        self._spawn(["ceph-osd", "-f", "-i", "0"], self._variables)
        keys = (f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")
        self._run("radosgw-admin", "user", "create", "--uid=tests", "--display-name=tests", *keys)
        self._spawn(["radosgw", "-f", "-n", "client.rgw"], self._variables)

    @property
    def _variables(self) -> dict[str, str]:
        return {"CEPH_CONF": str(self._directory / "ceph.conf"), "CEPH_ARGS": ""}

    def _run(self, *command: str) -> None:
        with self._log.open("ab") as log:
            ended = subprocess.run(
                command,
                env=os.environ | self._variables,
                stdout=log,
                stderr=log,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        assert ended.returncode == 0, self._log.read_text(errors="replace")[-2000:]

    def _configure(self, fsid: str, monitor: str) -> None:
        here = self._directory
        options = {
            "fsid": fsid,
            "mon host": monitor,
            "public addr": "127.0.0.1",
            "cluster addr": "127.0.0.1",
            **{f"auth {side} required": "none" for side in ("cluster", "service", "client")},
            **{f"ms {mode} mode": "crc" for mode in _MODES},
            # Nothing outside of the directory.
            "run dir": here,
            "crash dir": here,
            "keyring": here / "keyring",
            "admin socket": "",
            "pid file": "",
            "log file": here / "$name.log",
            "log to stderr": "false",
            "err to stderr": "true",
            "mon cluster log file": here / "cluster.log",
            "mon data": here / "monitor",
            "osd data": here / "osd",
            "osd journal": here / "osd" / "journal",
            "rgw data": here,
            # One of each, in memory.
            "osd objectstore": "memstore",
            "memstore device bytes": OBJECTS_BYTES,
            "osd pool default size": 1,
            "osd pool default min size": 1,
            "osd pool default pg num": 1,
            "osd pool default pg autoscale mode": "off",
            "osd crush chooseleaf type": 0,
            "mon allow pool size one": "true",
            "mon data avail crit": 1,
            "paxos propose interval": 0.02,
            "paxos min wait": 0.01,
            "rgw frontends": f"beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1",
        }
        lines = [f"{name} = {value}\n" for name, value in options.items()]
        (here / "ceph.conf").write_text("[global]\n" + "".join(lines))


def missing_programs() -> list[str]:
    """Return the programs of Ceph that are not on the PATH."""
    return [program for program in PROGRAMS if shutil.which(program) is None]
