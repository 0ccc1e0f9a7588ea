"""The name of one life of a worker, and whether such a life has surely ended.

A worker that is started again takes over at once what its former life held, instead of waiting for the lease to end. It
must be sure: a live worker would be robbed and blamed. Process numbers tell only within one namespace; two containers
may share host name, worker name and process number 1, whether one after the other or side by side.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

_NAMESPACE: Final = Path("/proc/self/ns/pid")


def incarnation(worker_name: str) -> str:
    """Return a name for this life of a worker: `name:host/namespace/pid/random`, with one colon and no white space."""
    name = re.sub(r"[\s:]", "_", worker_name)
    host = re.sub(r"[\s:/]", "_", socket.gethostname())
    namespace = _NAMESPACE.stat().st_ino if _NAMESPACE.exists() else 0
    return f"{name}:{host}/{namespace}/{os.getpid()}/{secrets.token_hex(4)}"


def has_died(former: str, mine: str, *, is_silent: bool) -> bool:
    """Say whether `former` was a life of the worker `mine`, and has surely ended.

    Args:
        former: an incarnation.
        mine: that of this process.
        is_silent: whether `former` gives no sign of life any more; a live one would, but for a fault.
    """
    name, _, place = former.rpartition(":")
    my_name, _, my_place = mine.rpartition(":")
    if name != my_name or former == mine:
        return False
    host, namespace, pid, _ = place.split("/")
    my_host, my_namespace, my_pid, _ = my_place.split("/")
    if host != my_host:
        return False
    if namespace != my_namespace:
        return is_silent
    return pid == my_pid or not _is_running(int(pid))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
