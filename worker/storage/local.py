"""Objects as files of this machine, or of a file system that it mounts.

A new object is a hidden file in the same directory first and gets its name by a hard link, which fails where the name
is taken: the conditional create of a POSIX file system. A process that is killed in between leaves a hidden file, which
no reader sees and nobody waits for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.files import sha256_of
from worker.storage.errors import (
    BadLocation,
    Changed,
    Damaged,
    Forbidden,
    NotConditional,
    NotFound,
    OutOfSpace,
    StorageError,
    TooLarge,
    Unavailable,
)
from worker.storage.objects import (
    MAX_OBJECT_BYTES,
    Creation,
    ObjectInfo,
    Outcome,
    hashed,
    local_path,
    prove_conditional,
)
from worker.storage.patterns import Pattern
from worker.storage.ranges import READ_AHEAD_BYTES, RangeReader

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable, Iterator

CHUNK_BYTES: Final = 1024 * 1024
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStore:
    """An `ObjectStore` of files. It keeps nothing, so that it may be shared in any way."""

    def list(self, uri: str) -> list[ObjectInfo]:
        """Return the files that `uri` means; see `ObjectStore`."""
        pattern = Pattern(os.path.abspath(local_path(uri)))  # noqa: PTH100 - resolves no links, unlike Path
        with translated_os_errors(uri):
            candidates = [pattern.text] if Path(pattern.text).is_file() else _files_below(pattern.directory)
            matching = sorted(filter(pattern.matches, candidates))
            return [info for path in matching for info in _info_if_there(path)]

    def info(self, uri: str) -> ObjectInfo:
        """Return one file; see `ObjectStore`."""
        path = _path(uri)
        with translated_os_errors(uri):
            if not path.is_file():
                raise NotFound(uri, "there is no such file")
            return _info(str(path), path.stat())

    def open(self, info: ObjectInfo, read_ahead_bytes: int = READ_AHEAD_BYTES) -> io.BufferedIOBase:
        """Return a reader that compares the file with `info` after each read; see `ObjectStore`."""
        with translated_os_errors(info.uri):
            descriptor = os.open(_path(info.uri), os.O_RDONLY | os.O_CLOEXEC)
        reader = RangeReader(
            info.size_bytes,
            lambda start, end: _read_range(info, descriptor, start, end),
            lambda: os.close(descriptor),
            read_ahead_bytes,
        )
        try:
            _check_unchanged(info, descriptor)
        except Changed:
            reader.close()
            raise
        return reader

    def create(self, uri: str, source: Path, sha256: str) -> Creation:
        """Copy a file under a new name; see `ObjectStore`."""
        with translated_os_errors(str(source)), source.open("rb") as content:
            if os.fstat(content.fileno()).st_size > MAX_OBJECT_BYTES:
                raise TooLarge(uri, f"more than {MAX_OBJECT_BYTES:,} bytes in one object; write smaller parts")
            with translated_os_errors(uri):
                return _written(uri, iter(lambda: content.read(CHUNK_BYTES), b""), sha256, only_new=True)

    def get_bytes(self, uri: str) -> bytes:
        """Return a file's content; see `ObjectStore`."""
        with translated_os_errors(uri):
            return _path(uri).read_bytes()

    def put_bytes(self, uri: str, content: bytes, *, only_new: bool = False) -> Creation:
        """Write a small file; see `ObjectStore`."""
        with translated_os_errors(uri):
            return _written(uri, [content], hashlib.sha256(content).hexdigest(), only_new=only_new)

    def sha256(self, uri: str) -> str:
        """Return the SHA-256 of a file as it is read; see `ObjectStore`."""
        return hashed(self, self.info(uri))

    def delete(self, uri: str) -> None:
        """Remove a file; see `ObjectStore`."""
        with translated_os_errors(uri):
            _path(uri).unlink(missing_ok=True)

    def exists(self, uri: str) -> bool:
        """Whether there is such a file."""
        return _path(uri).is_file()

    def probe(self, prefix: str) -> None:
        """Prove that the file system links names exclusively; see `ObjectStore`."""
        prove_conditional(self, prefix)


def _path(uri: str) -> Path:
    path = Path(os.path.abspath(local_path(uri)))  # noqa: PTH100 - as above
    if local_path(uri).endswith("/"):
        raise BadLocation(uri, "this names a directory; give a file")
    return path


def _files_below(directory: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    seen: set[tuple[int, int]] = set()
    for parent, children, names in os.walk(directory, onerror=fail, followlinks=True):
        status = Path(parent).stat()
        if (status.st_dev, status.st_ino) in seen:  # a link to a directory above
            children.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield from (os.path.join(parent, name) for name in names)  # noqa: PTH118 - a million Paths cost seconds


def _info_if_there(path: str) -> Iterator[ObjectInfo]:
    with suppress(FileNotFoundError):
        yield _info(path, Path(path).stat())


def _info(uri: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(uri, status.st_size, f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}")


def _check_unchanged(info: ObjectInfo, descriptor: int) -> None:
    if _info(info.uri, os.fstat(descriptor)).etag != info.etag:
        raise Changed(info.uri, "the file is no longer the one that was listed; plan the run again")


def _read_range(info: ObjectInfo, descriptor: int, start: int, end: int) -> bytes:
    pieces = []
    with translated_os_errors(info.uri):
        while start < end and (piece := os.pread(descriptor, end - start, start)):
            pieces.append(piece)
            start += len(piece)
    _check_unchanged(info, descriptor)
    return b"".join(pieces)


def _written(uri: str, pieces: Iterable[bytes], sha256: str, *, only_new: bool) -> Creation:
    path = _path(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name[:64]}.{uuid.uuid4().hex}")
    try:
        if _write_through(draft, pieces) != sha256:
            raise Damaged(uri, "the file to store is not what its SHA-256 says; write it again")
        if only_new:
            os.link(draft, path)
        else:
            draft.replace(path)
        _flush_directory(path.parent)
    except FileExistsError:
        if not path.samefile(draft):  # else NFS has lost the answer to the first try and repeated it
            return Creation(Outcome.EXISTS, sha256_of(path))
    finally:
        draft.unlink(missing_ok=True)
    return Creation(Outcome.CREATED, sha256)


def _write_through(path: Path, pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    with path.open("xb") as out:
        for piece in pieces:
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def translated_os_errors(uri: str) -> Iterator[None]:
    """Turn the operating system's errors about `uri` into a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise _error(uri, error) from error


def _error(uri: str, error: OSError) -> StorageError:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return OutOfSpace(uri, f"no room for it ({name}); free some space, then resume")
    if error.errno in (errno.EACCES, errno.EROFS):
        return Forbidden(uri, f"this user may not ({name}); mend the rights of the file or its directory")
    if error.errno in _NO_LINKS:
        return NotConditional(uri, f"the file system has no hard links ({name}); write to another, or to S3")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(uri, "there is no such file")
    if error.errno in (errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
        return BadLocation(uri, f"this cannot name a file ({name})")
    return Unavailable(uri, f"the file system failed ({name}); look at the disk or the mount, then try again")
