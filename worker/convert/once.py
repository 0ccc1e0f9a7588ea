"""A model directory that is made once: beside its place, under a lock, and renamed when complete.

Why it exists: two builds at a time must not mix, and one that is killed must leave no half model that looks whole. Of
two builds the second waits and finds the first one's. It knows directories; what is made is the caller's.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

Progress = Callable[[str], None]

_UNFINISHED: Final = ".unfinished-"


def build_once(models: Path, name: str, make: Callable[[Path], None], progress: Progress) -> Path:
    """Return the directory `name`, made if it is not there. Blocks while it, or another process, makes one.

    Args:
        models: where finished models lie; it is made.
        name: of the finished directory.
        make: fills the empty directory that it is given; what it raises is passed on.
        progress: told in a sentence what happens next.
    """
    models.mkdir(parents=True, exist_ok=True)
    with _locked(models / ".lock", progress):
        if (models / name).is_dir():
            progress("The model is there already.")
            return models / name
        for left_behind in models.glob(f"{_UNFINISHED}*"):  # by a build that was killed: it would hold the lock
            shutil.rmtree(left_behind)
        return _make(models, name, make)


def _make(models: Path, name: str, make: Callable[[Path], None]) -> Path:
    unfinished = Path(mkdtemp(prefix=_UNFINISHED, dir=models))
    try:
        make(unfinished)
        unfinished.chmod(0o755)
        return unfinished.rename(models / name)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock that the system drops when its holder dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Another process is building; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
