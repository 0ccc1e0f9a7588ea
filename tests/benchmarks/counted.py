"""Runs a module and counts its requests: one byte in a file for each packet that redis-py sends.

A pipeline is one packet, so the file tells the number of round trips, which the server cannot: it counts reads,
and one large pipeline takes it several. `.` is a round trip, `m` one of this worker's marks, which it sends
without waiting for the answer. Forked children count into the same file. Used in runs of their own, because
counting costs time.
"""

from __future__ import annotations

import os
import runpy
import sys

from redis.connection import AbstractConnection

MARK = b"$4\r\nHSET\r\n$17\r\nbatchmill:running\r\n"

_counter = os.open(os.environ["BENCH_COUNTER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_send = AbstractConnection.send_packed_command


def _counted(self: AbstractConnection, command: bytes | list[bytes], **kwargs: object) -> object:
    packet = command if isinstance(command, bytes) else b"".join(command)
    os.write(_counter, b"m" if MARK in packet else b".")
    return _send(self, command, **kwargs)  # type: ignore[no-untyped-call]  # redis-py is half typed


setattr(AbstractConnection, _send.__name__, _counted)
sys.path.pop(0)  # this file's directory, which `python -m` would not have
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
