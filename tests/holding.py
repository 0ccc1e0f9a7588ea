"""How much memory a process and its children take together, at most, while something is done. Linux only.

What they share is counted once.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

KIB = 1024
EVERY_S = 0.2


class Watch:
    """Looks at a process and its children, all the time that it is a context.

    Attributes:
        most_bytes: the most that all together held at one look.
        parts: what each of them held then, in MiB, the process itself first.
    """

    def __init__(self, pid: int) -> None:
        self.most_bytes = 0
        self.parts: list[int] = []
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(EVERY_S):
            parts = [*map(_held_bytes, [self._pid, *_children(self._pid)])]
            if sum(parts) > self.most_bytes:
                self.most_bytes, self.parts = sum(parts), [one >> 20 for one in parts]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, tasks.read_text().split())
    return found


def _held_bytes(pid: int) -> int:
    with suppress(OSError):
        found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
        return int(found[1]) * KIB if found else 0
    return 0  # it has ended
