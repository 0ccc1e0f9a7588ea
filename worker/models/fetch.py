"""Brings a model directory from an object store to this machine: whole and as it was pinned, or not at all.

Why it exists: a pod starts without a model, and serving another one than was rolled out is worse than not starting. One
number pins every file of the directory, names included, so that neither a flipped byte nor another model's tokenizer
passes. In the directory, `sha256sum * | LC_ALL=C sort -k2 | sha256sum` prints it, so that whoever uploads a model needs
nothing of ours. It knows no kind of model: whether the files make one is for the caller to say.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final

from worker.convert.once import build_once
from worker.errors import ModelError
from worker.files import sha256_of
from worker.storage.errors import BadLocation, Damaged, NotFound
from worker.storage.local import translated_os_errors
from worker.storage.objects import HASHED_BYTES, PATIENCE_S, store_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from worker.convert.once import Progress
    from worker.storage.objects import ObjectInfo, ObjectStore

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def fetch(uri: str, sha256: str, to: Path, check: Callable[[Path], object], progress: Progress) -> Path:
    """Return `to`, filled from `uri` if it is not there yet. Blocks; of two calls at a time the second waits.

    Args:
        uri: the directory, `s3://bucket/prefix/` or a path.
        sha256: over all its files, as `files_sha256` computes it.
        to: the directory to make; the one above it is made, too, and must be writable.
        check: refuses a directory that holds no model; called before `to` appears.
        progress: told in a sentence what happens next.

    Raises:
        StorageError: the store refuses, or its files are not what `sha256` says: then nothing of them stays.
        ModelError: `to` holds other files, or `check` refuses these.
    """

    def make(directory: Path) -> None:
        digests = _download(uri, directory, progress)
        if combined(digests) != sha256:
            raise Damaged(uri, _difference(digests, sha256))
        check(directory)

    with translated_os_errors(str(to)):
        path = build_once(to.parent, to.name, make, progress)
        found = files_sha256(path)
    if found != sha256:
        raise ModelError(
            f"{path} is there already and holds other files (sha256 {found}, not {sha256}): a worker may be using it, "
            "so give each version a directory of its own, or remove this one first"
        )
    return path


def files_sha256(directory: Path) -> str:
    """Return one SHA-256 over the names and contents of all files of a directory, in hex. Blocks while it reads them.

    Names that begin with `.` or `_` do not count, nor do directories.
    """
    return combined({path.name: sha256_of(path) for path in directory.iterdir() if _counts(path)})


def combined(digests: Mapping[str, str]) -> str:
    """Return the SHA-256 over what `sha256sum` prints of files in the order of their names.

    Args:
        digests: the SHA-256 of each file by its name.
    """
    lines = (f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _counts(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "_"))


def _download(uri: str, directory: Path, progress: Progress) -> dict[str, str]:
    """Fill `directory`; return the SHA-256 of each file by its name."""
    store = store_for(uri, PATIENCE_S)
    files = _named(uri, store.list(uri if uri.endswith("/") else f"{uri}/"))
    size_bytes = sum(info.size_bytes for info in files.values())
    progress(f"Fetching {len(files)} files, {size_bytes / 1e6:,.1f} MB, from {uri}.")
    return {name: _copy(store, info, directory / name) for name, info in files.items()}


def _named(uri: str, found: Sequence[ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return what was listed by its name in the directory, which must be flat."""
    if not found:
        raise NotFound(uri, "there are no files; give the directory of one model, as it was uploaded")
    files = {info.uri.rpartition("/")[2]: info for info in found}
    if len({info.uri.rpartition("/")[0] for info in found}) > 1:
        raise BadLocation(uri, "this holds folders; give the directory of one model, with its files side by side")
    for name in files:
        if not _PLAIN_NAME.fullmatch(name):
            raise BadLocation(uri, "a file's name has other characters than letters, digits, dot, plus, hyphen, line")
    return files


def _copy(store: ObjectStore, info: ObjectInfo, path: Path) -> str:
    digest = hashlib.sha256()
    with store.open(info) as source, path.open("xb") as copy:
        while piece := source.read(HASHED_BYTES):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def _difference(digests: Mapping[str, str], sha256: str) -> str:
    alone = [name for name, digest in digests.items() if digest == sha256]
    if alone:
        return (
            f"{sha256} is the sha256 of {alone[0]} alone, and that of all files is {combined(digests)}: give the one "
            "that `batchmill model show` calls files_sha256"
        )
    return (
        f"its files have the sha256 {combined(digests)}, not {sha256}: they were changed or stored incompletely; "
        "upload them again, or give the one that `batchmill model show` calls files_sha256"
    )
