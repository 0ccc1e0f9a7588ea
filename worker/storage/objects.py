"""Objects in a store, on S3 or on a disk: what the bulk runs and the OCR read from and write to.

An object is written once and whole; a reader is pinned to what was listed. What the promise of exactly-once output
rests on is `create`: of all who write a name, one wins, and the others learn what the winner wrote. It knows nothing of
Parquet, jobs or queues.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from worker.storage.errors import BadLocation, NotConditional

if TYPE_CHECKING:
    import io
    from pathlib import Path

MAX_OBJECT_BYTES: Final = 5 * 1024**3
PROBE_NAME: Final = ".batchmill-probe"
HASHED_BYTES: Final = 8 * 1024**2
PATIENCE_S: Final = 3.0  # of a command, for which somebody waits, with a store that cannot be reached
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as it was when somebody looked.

    Attributes:
        uri: its full name.
        size_bytes: its length.
        etag: changes whenever the content does; what it is made of is the store's business.
        version: of a versioned bucket, else None. A list has none: only `info` asks for it.
    """

    uri: str
    size_bytes: int
    etag: str
    version: str | None = None


class Outcome(StrEnum):
    """How a conditional create ended."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Creation:
    """What a conditional create came to.

    Attributes:
        outcome: whether the name is ours, or was taken.
        sha256: of the content that stands there now, in hex; None if whoever wrote it left none.
    """

    outcome: Outcome
    sha256: str | None

    @property
    def is_new(self) -> bool:
        """Whether this call created it."""
        return self.outcome is Outcome.CREATED


class ObjectStore(Protocol):
    """A store of one kind. Thread-safe, and safe to use in a child after a fork. Every call blocks.

    Each call raises `Forbidden`, `Unavailable` or `BadLocation` where it fits, beside what it says itself.
    """

    def list(self, uri: str) -> list[ObjectInfo]:
        """Return what a glob, a prefix or a name means, sorted by URI; empty if there is nothing.

        Names that begin with `_` or `.` below the part without wildcards are skipped, as other readers do.
        """

    def info(self, uri: str) -> ObjectInfo:
        """Return one object with its version. Raises `NotFound`."""

    def open(self, info: ObjectInfo, read_ahead_bytes: int = ...) -> io.BufferedIOBase:
        """Return a seekable reader of exactly this object; its reads raise `Changed` once it is another.

        Each read is safe beside others, a seek and its read are not: take one reader for each thread.
        """

    def create(self, uri: str, source: Path, sha256: str) -> Creation:
        """Write a file under a name that nobody has taken; visible at once and whole, or not at all.

        Args:
            uri: the name.
            source: the file; stays as it is.
            sha256: of its content, in hex.

        Raises:
            TooLarge: it has more than `MAX_OBJECT_BYTES`.
            Damaged: the file is not what `sha256` says.
            NotConditional: the store says that it cannot.
            OutOfSpace: there is no room.
        """

    def get_bytes(self, uri: str) -> bytes:
        """Return a small object, checked against its SHA-256 if it has one. Raises `NotFound`, `Damaged`."""

    def put_bytes(self, uri: str, content: bytes, *, only_new: bool = False) -> Creation:
        """Write a small object, over whatever is there unless `only_new`. Raises as `create` does."""

    def sha256(self, uri: str) -> str:
        """Return the SHA-256 of an object, in hex: as its writer left it with it, else of its bytes.

        Raises `NotFound`, and `Changed` if it becomes another meanwhile.
        """

    def delete(self, uri: str) -> None:
        """Remove an object; nothing happens if there is none."""

    def exists(self, uri: str) -> bool:
        """Whether there is an object of this name."""

    def probe(self, prefix: str) -> None:
        """Prove that conditional creates hold below `prefix`; leaves nothing there. Raises `NotConditional`."""


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case: `file` for a path."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found else "file"


def store_for(uri: str, unreachable_s: float | None = None) -> ObjectStore:
    """Return a new store for `s3://bucket/key`, `file:///path` or a path. Share one: it keeps its connections.

    Args:
        uri: of anything in it.
        unreachable_s: how long one is tried to which no connection has ever come about; None = as one that was lost.

    Raises:
        BadLocation: nothing here reads this kind of URI.
    """
    match scheme_of(uri):
        case "s3":
            from worker.storage.s3 import S3Store  # noqa: PLC0415 - boto3 is loaded where it is used only
            from worker.storage.s3_calls import Limits  # noqa: PLC0415

            return S3Store() if unreachable_s is None else S3Store(Limits(unreachable_s=unreachable_s))
        case "file":
            from worker.storage.local import LocalStore  # noqa: PLC0415 - it imports this module

            return LocalStore()
        case scheme:
            raise BadLocation(uri, f"{scheme}:// is not supported; give s3://bucket/key, file:///path or a path")


def split_s3(uri: str) -> tuple[str, str]:
    """Return bucket and key of `s3://bucket/key`. Raises `BadLocation`."""
    bucket, _, key = uri[len("s3://") :].partition("/")
    if scheme_of(uri) != "s3" or not bucket:
        raise BadLocation(uri, "an object on S3 is written s3://bucket/key")
    return bucket, key


def local_path(uri: str) -> str:
    """Return the path that `file:///path` or a path means. Raises `BadLocation`."""
    if scheme_of(uri) != "file":
        raise BadLocation(uri, "this is not a path")
    if not _SCHEME.match(uri):
        return uri
    path = unquote(uri[len("file://") :])
    if not path.startswith("/"):
        raise BadLocation(uri, "a file URI has three slashes and an absolute path: file:///data/in.parquet")
    return path


def hashed(store: ObjectStore, info: ObjectInfo) -> str:
    """Return the SHA-256 of an object's bytes as they are read, in hex; holds `HASHED_BYTES` of them at a time.

    Raises:
        Changed: the object is no longer the one that was listed.
    """
    digest = hashlib.sha256()
    with store.open(info) as content:
        while piece := content.read(HASHED_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def prove_conditional(store: ObjectStore, prefix: str) -> None:
    """Create a name twice below `prefix`: the second must be refused, the first must stand. Cleans up.

    Raises:
        NotConditional: the store overwrites, refuses or forgets.
    """
    uri = f"{prefix.rstrip('/')}/{PROBE_NAME}-{uuid.uuid4().hex}"
    try:
        first = store.put_bytes(uri, b"first", only_new=True)
        second = store.put_bytes(uri, b"second", only_new=True)
        stands = store.get_bytes(uri)
    finally:
        store.delete(uri)
    if not first.is_new or second.is_new or stands != b"first":
        raise NotConditional(
            prefix,
            "the store lets a second writer overwrite what a first one created (it ignores If-None-Match), so that a "
            "bulk run could not promise its output; write to one that honours it, such as AWS S3, SeaweedFS or Ceph",
        )
