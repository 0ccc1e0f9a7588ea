"""What can go wrong with an object store, one class for each thing that a caller can do about it.

    BatchmillError
    └── StorageError        none of those below: the store refused, and the text says with which code
        ├── BadLocation     the URI cannot be read: permanent
        ├── NotFound        no such object or bucket: permanent
        ├── Changed         the object is no longer the one that was pinned: plan again
        ├── Forbidden       credentials are missing, expired or not enough: permanent until somebody mends them
        ├── Unavailable     no good answer within the time limits: transient
        │   └── Unreachable there is not even a connection
        ├── NotConditional  the store does not honour conditional creates: use another
        ├── TooLarge        more bytes than one conditional create can take: write smaller parts
        ├── Damaged         the bytes are not those that their checksum promises
        └── OutOfSpace      the disk or the quota is full

Every text names the URI and the remedy; none has a credential, a signed URL or a sentence of the store's own.
"""

from __future__ import annotations

from worker.errors import BatchmillError


class StorageError(BatchmillError):
    """Base of what a store raises.

    Args:
        uri: the object, prefix or path that it is about.
        what: the rest of the sentence, with the remedy.
    """

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(uri, what)
        self.uri = uri
        self.what = what

    def __str__(self) -> str:
        return f"{self.uri}: {self.what}"


class BadLocation(StorageError):  # noqa: N818 - these names say what happened
    """The URI cannot be read."""


class NotFound(StorageError):  # noqa: N818
    """There is no such object or bucket."""


class Changed(StorageError):  # noqa: N818
    """The object is no longer the one that was listed."""


class Forbidden(StorageError):  # noqa: N818
    """Credentials are missing, expired or not enough."""


class Unavailable(StorageError):  # noqa: N818
    """The store gave no good answer within the time limits; a later try may succeed."""


class Unreachable(Unavailable):
    """No connection to the store comes about."""


class NotConditional(StorageError):  # noqa: N818
    """The store does not honour conditional creates."""


class TooLarge(StorageError):  # noqa: N818
    """More bytes than one conditional create can take."""


class Damaged(StorageError):  # noqa: N818
    """The bytes are not those that their checksum promises."""


class OutOfSpace(StorageError):  # noqa: N818
    """The disk or the quota is full."""
