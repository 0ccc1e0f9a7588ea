"""Places in object stores: a store of ours, and a prefix in it that is one test's own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.s3_servers import BUCKET
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    import pytest

    from tests.s3_servers import StoreServer
    from worker.storage.objects import ObjectStore

QUICK: Final = Limits(connect_s=1.0, read_s=1.0, transfer_s=1.0, total_s=6.0, attempts=2)


@dataclass(frozen=True)
class Place:
    """A store, and a prefix in it that is this test's own."""

    store: ObjectStore
    prefix: str

    def put(self, name: str, content: bytes = b"x") -> str:
        """Store it; return its URI."""
        uri = f"{self.prefix}/{name}"
        self.store.put_bytes(uri, content)
        return uri

    def names(self, pattern: str) -> list[str]:
        """Return what the store lists, without the prefix."""
        return [info.uri.removeprefix(f"{self.prefix}/") for info in self.store.list(f"{self.prefix}{pattern}")]


def s3_place(server: StoreServer, monkeypatch: pytest.MonkeyPatch, endpoint: str | None = None) -> Place:
    """A place on a server, or on what stands before it at `endpoint`; the variables of this process then name it."""
    for name, value in server.environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return Place(S3Store(QUICK), f"s3://{BUCKET}/{uuid.uuid4().hex}")
