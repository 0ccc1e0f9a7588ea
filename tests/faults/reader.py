"""A reader of an S3 server that looks all the time, and notes whatever a reader must never see.

Whatever is listed as a part reads whole at once, and never changes afterwards; whatever a manifest names is there; and
nobody sees `_SUCCESS` before the manifest.
"""

from __future__ import annotations

import hashlib
import io
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from schemas.bulk_manifest import MANIFEST_FILE, SUCCESS_FILE, BulkManifest
from tests.s3_servers import BUCKET

if TYPE_CHECKING:
    from tests.s3_servers import S3Server

LOOK_EVERY_S: Final = 0.1


class Reader:
    """Looks at everything below a prefix, in a thread of its own, until its context ends.

    Args:
        server: looked at directly, whatever the workers' way to it is; while it is away nothing is seen.
        prefix: of keys in the bucket.

    Attributes:
        seen: by key, the ETag of every part, rejects file, plan, manifest and `_SUCCESS` so far.
        violations: what must never be seen, and was.
    """

    def __init__(self, server: S3Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reader")
        self.seen: dict[str, str] = {}
        self.violations: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Look a last time, and stop."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        client = self._server.client()
        try:
            while not self._over.wait(LOOK_EVERY_S):
                self._look(client)
            self._look(client)
        finally:
            client.close()

    def _look(self, client: Any) -> None:  # noqa: ANN401 - boto3 makes its class at run time
        try:
            etags = {
                entry["Key"]: entry["ETag"]
                for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self._prefix)
                for entry in page.get("Contents", ())
                if _is_final(entry["Key"])
            }
            gone = self.seen.keys() - etags.keys()
            self.violations += [f"{key} is gone" for key in gone]
            for key, etag in etags.items():
                self._look_at(client, key, etag)
        except (BotoCoreError, ClientError) as error:
            if "NoSuchKey" in str(error):
                self.violations.append(f"what was listed, or named by a manifest, is not there: {error}")

    def _look_at(self, client: Any, key: str, etag: str) -> None:  # noqa: ANN401 - as above
        if key in self.seen:
            if self.seen[key] != etag:
                self.violations.append(f"{key} was overwritten")
            return
        answer = client.get_object(Bucket=BUCKET, Key=key)
        content = answer["Body"].read()
        if answer["Metadata"].get("sha256") != hashlib.sha256(content).hexdigest():
            self.violations.append(f"{key} is not what its writer sent")
        if key.endswith((".parquet", ".rejects")) and not _is_whole(content):
            self.violations.append(f"{key} does not read")
        if key.endswith(MANIFEST_FILE):
            for part in BulkManifest.model_validate_json(content).parts:
                client.head_object(Bucket=BUCKET, Key=part.uri.removeprefix(f"s3://{BUCKET}/"))
        if key.endswith(SUCCESS_FILE):
            client.head_object(Bucket=BUCKET, Key=f"{key.removesuffix(SUCCESS_FILE)}{MANIFEST_FILE}")
        self.seen[key] = etag


def _is_final(key: str) -> bool:
    return key.endswith((".parquet", ".rejects", "/plan.json", f"/{MANIFEST_FILE}", f"/{SUCCESS_FILE}"))


def _is_whole(content: bytes) -> bool:
    try:
        pq.read_table(io.BytesIO(content), page_checksum_verification=True).validate(full=True)
    except (pa.ArrowException, OSError):
        return False
    return True
