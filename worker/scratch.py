"""Directories for files on their way, which vanish with the block that uses them, or soon after its process was killed.

A killed process cannot clean up, and a worker that dies again and again would fill its disk. So whoever needs a
directory first removes those that nobody holds any more. A directory is held by a lock on it, which ends with the
process, in whatever container that is; process numbers would tell nothing there. It knows nothing of what is in them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "batchmill-scratch-"
SETTLED_S: Final = 60.0  # between a directory and its lock, and far more


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory of this block's own below the system's one for temporary files.

    Raises:
        OSError: the disk is full, say.
    """
    _remove_abandoned(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it went away, or is another user's
            if time() - path.stat().st_mtime > SETTLED_S:
                _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    """Raises OSError if somebody holds it."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(lock)
