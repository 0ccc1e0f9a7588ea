"""Objects on S3, or on a store that speaks its language.

It asks no more of a store than the old ones can do: one plain PUT with `If-None-Match: *` creates an object (Ceph does
not honour the condition on a multipart upload), `Content-MD5` protects it on its way (boto3's newer checksums break
older stores), and a reader compares the ETag of each answer instead of sending `If-Match` (Ceph refuses one in quotes).
The SHA-256 travels as metadata: it tells a second writer what the first one wrote, and a writer whose answer was lost
that the object is its own.

A bit that flips in a range of an object is for the format's checksums to see, or for TLS: S3 has none for a range.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from worker.storage.errors import Changed, Damaged, NotFound, TooLarge, Unavailable
from worker.storage.local import CHUNK_BYTES, translated_os_errors
from worker.storage.objects import (
    MAX_OBJECT_BYTES,
    Creation,
    ObjectInfo,
    Outcome,
    hashed,
    prove_conditional,
    split_s3,
)
from worker.storage.patterns import Pattern
from worker.storage.ranges import READ_AHEAD_BYTES, RangeReader
from worker.storage.s3_calls import Caller, Limits, append_body, code_and_status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from worker.storage.s3_calls import Answer, Client

_MISSING: Final = 404
_TAKEN: Final = 412
_GONE: Final = frozenset({_MISSING, _TAKEN, 416})
_SHA256: Final = "sha256"
_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class S3Store:
    """An `ObjectStore` of S3 objects; see `Caller` for what it shares between threads and processes.

    Args:
        limits: how long a call may take.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._caller = Caller(self._limits)

    def list(self, uri: str) -> list[ObjectInfo]:
        """Return the objects that `uri` means; see `ObjectStore`."""
        bucket, key = split_s3(uri)
        pattern = Pattern(key)
        if key and not pattern.is_glob and not key.endswith("/"):
            try:
                return [self.info(uri)]
            except NotFound:
                pass  # then it is a directory
        prefix = pattern.literal if pattern.is_glob else pattern.directory
        found = (
            ObjectInfo(f"s3://{bucket}/{entry['Key']}", entry["Size"], _etag(entry))
            for entry in self._entries(uri, bucket, prefix)
            if pattern.matches(entry["Key"])
        )
        return sorted(found, key=lambda info: info.uri)

    def info(self, uri: str) -> ObjectInfo:
        """Return one object; see `ObjectStore`."""
        return _info(uri, self._head(uri))

    def open(self, info: ObjectInfo, read_ahead_bytes: int = READ_AHEAD_BYTES) -> io.BufferedIOBase:
        """Return a reader that asks for ranges, and asks nothing before the first read; see `ObjectStore`."""
        split_s3(info.uri)
        return RangeReader(
            info.size_bytes, lambda start, end: self._range(info, start, end), read_ahead_bytes=read_ahead_bytes
        )

    def create(self, uri: str, source: Path, sha256: str) -> Creation:
        """Write a file in one conditional PUT; see `ObjectStore`."""
        with translated_os_errors(str(source)), source.open("rb") as content:
            size_bytes = os.fstat(content.fileno()).st_size
            if size_bytes > MAX_OBJECT_BYTES:
                raise TooLarge(uri, f"S3 creates at most {MAX_OBJECT_BYTES:,} bytes at once; write smaller parts")
            md5, actual_sha256 = _digests(content)
            if actual_sha256 != sha256:
                raise Damaged(uri, "the file to store is not what its SHA-256 says; write it again")
            return self._put(
                uri, _Paced(content, self._limits.transfer_limit_s(size_bytes)), md5, sha256, only_new=True
            )

    def get_bytes(self, uri: str) -> bytes:
        """Return a small object; see `ObjectStore`."""
        bucket, key = split_s3(uri)

        def attempt(client: Client, _: int) -> bytes:
            answer = client.get_object(Bucket=bucket, Key=key)
            content = bytearray()
            append_body(uri, answer, content, answer["ContentLength"], self._limits)
            stored = _sha256_of(answer)
            if stored is not None and stored != hashlib.sha256(content).hexdigest():
                raise Damaged(uri, "its content is not what its SHA-256 says; restore it, or look at the network")
            return bytes(content)

        return self._caller.call(uri, attempt)

    def put_bytes(self, uri: str, content: bytes, *, only_new: bool = False) -> Creation:
        """Write a small object; see `ObjectStore`."""
        md5, sha256 = _digests(io.BytesIO(content))
        body = _Paced(io.BytesIO(content), self._limits.transfer_limit_s(len(content)))
        return self._put(uri, body, md5, sha256, only_new=only_new)

    def sha256(self, uri: str) -> str:
        """Return the SHA-256 in an object's metadata, else that of its bytes; see `ObjectStore`."""
        answer = self._head(uri)
        stored = _sha256_of(answer)
        if stored is not None and _HEX_DIGEST.fullmatch(stored):
            return stored
        return hashed(self, _info(uri, answer))

    def delete(self, uri: str) -> None:
        """Remove an object; of a versioned bucket, the name only; see `ObjectStore`."""
        bucket, key = split_s3(uri)
        self._caller.call(uri, lambda client, _: client.delete_object(Bucket=bucket, Key=key))

    def exists(self, uri: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self._head(uri)
        except NotFound:
            return False
        return True

    def probe(self, prefix: str) -> None:
        """Prove that the store honours `If-None-Match: *`; see `ObjectStore`."""
        prove_conditional(self, prefix)

    def _head(self, uri: str) -> Answer:
        bucket, key = split_s3(uri)
        answer: Answer = self._caller.call(uri, lambda client, _: client.head_object(Bucket=bucket, Key=key))
        return answer

    def _entries(self, uri: str, bucket: str, prefix: str) -> Iterator[Answer]:
        token: str | None = ""
        while token is not None:
            page = self._page(uri, bucket, prefix, token)
            yield from page.get("Contents", ())
            token = page["NextContinuationToken"] if page.get("IsTruncated") else None

    def _page(self, uri: str, bucket: str, prefix: str, token: str) -> Answer:
        more = {"ContinuationToken": token} if token else {}
        page: Answer = self._caller.call(
            uri, lambda client, _: client.list_objects_v2(Bucket=bucket, Prefix=prefix, **more)
        )
        return page

    def _range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        bucket, key = split_s3(info.uri)
        version = {"VersionId": info.version} if info.version else {}
        content = bytearray()

        def attempt(client: Client, _: int) -> None:
            first = start + len(content)
            try:
                answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{end - 1}", **version)
            except ClientError as error:
                if code_and_status(error)[1] in _GONE:
                    raise Changed(info.uri, "the object is gone or shorter; plan the run again") from error
                raise
            _check_range(info, answer, f"bytes {first}-{end - 1}/{info.size_bytes}")
            append_body(info.uri, answer, content, end - start, self._limits)

        self._caller.call(info.uri, attempt)
        return bytes(content)

    def _put(self, uri: str, body: _Paced, md5: str, sha256: str, *, only_new: bool) -> Creation:
        bucket, key = split_s3(uri)
        condition = {"IfNoneMatch": "*"} if only_new else {}

        def attempt(client: Client, number: int) -> Creation:
            body.seek(0)
            try:
                client.put_object(
                    Bucket=bucket, Key=key, Body=body, ContentMD5=md5, Metadata={_SHA256: sha256}, **condition
                )
            except ClientError as error:
                if not only_new or code_and_status(error)[1] != _TAKEN:
                    raise
                repeated = number > 0 or error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
                return _who_won(uri, client, sha256, repeated=repeated)
            return Creation(Outcome.CREATED, sha256)

        return self._caller.call(uri, attempt)


class _Paced:
    """A body for botocore that takes no longer than `limit_s` from each time that it is sent from its start."""

    def __init__(self, content: BinaryIO, limit_s: float) -> None:
        self._content = content
        self._limit_s = limit_s
        self._until_s = 0.0

    def read(self, size: int = -1) -> bytes:
        if time.monotonic() > self._until_s:
            raise TimeoutError("the store takes the body too slowly")
        return self._content.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._until_s = time.monotonic() + self._limit_s
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()


def _digests(content: BinaryIO) -> tuple[str, str]:
    """Return MD5 as `Content-MD5` wants it, and SHA-256 in hex, in one pass."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    while piece := content.read(CHUNK_BYTES):
        md5.update(piece)
        sha256.update(piece)
    return base64.b64encode(md5.digest()).decode(), sha256.hexdigest()


def _info(uri: str, answer: Answer) -> ObjectInfo:
    version = answer.get("VersionId")
    return ObjectInfo(uri, answer["ContentLength"], _etag(answer), None if version == "null" else version)


def _etag(answer: Answer) -> str:
    return str(answer["ETag"]).strip('"')


def _sha256_of(answer: Answer) -> str | None:
    """Return the SHA-256 that the writer left; some stores change the case of the key."""
    metadata: dict[str, Any] = answer.get("Metadata", {})
    return next((str(value) for name, value in metadata.items() if name.lower() == _SHA256), None)


def _who_won(uri: str, client: Client, sha256: str, *, repeated: bool) -> Creation:
    """Return whose object stands. After a repeated PUT, one with our content is the first PUT's, its answer lost."""
    bucket, key = split_s3(uri)
    try:
        stored = _sha256_of(client.head_object(Bucket=bucket, Key=key))
    except ClientError as error:
        if code_and_status(error)[1] == _MISSING:
            raise Unavailable(uri, "others create and delete it at once; let one run at a time write there") from error
        raise
    ours = repeated and stored == sha256
    return Creation(Outcome.CREATED if ours else Outcome.EXISTS, stored)


def _check_range(info: ObjectInfo, answer: Answer, expected: str) -> None:
    if _etag(answer) != info.etag:
        answer["Body"].close()
        raise Changed(info.uri, "the object is no longer the one that was listed; plan the run again")
    if answer.get("ContentRange") != expected:
        answer["Body"].close()
        raise Unavailable(info.uri, "the store sends another range than it was asked for; use one that serves ranges")
