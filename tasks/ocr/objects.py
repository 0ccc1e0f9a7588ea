"""The bytes of a document in a store. What may be read is decided before (`tasks.ocr.sources`).

It is read on one of few threads of the engine, whose watchdog ends a worker that seems stuck. So a store that stalls is
given up sooner than anywhere else, and how long that may take is said here (`longest_read_s`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.errors import ErrorCode
from worker.errors import ItemFailed
from worker.storage.errors import Changed, Forbidden, NotFound, StorageError
from worker.storage.local import LocalStore
from worker.storage.objects import ObjectInfo, scheme_of
from worker.storage.s3 import S3Store
from worker.storage.s3_calls import Limits

if TYPE_CHECKING:
    from worker.storage.objects import ObjectStore

LIMITS: Final = Limits(
    connect_s=3.0, read_s=6.0, transfer_s=5.0, total_s=10.0, slowest_bytes_per_s=4 * 1024 * 1024, attempts=1
)
_SILENCE_S: Final = LIMITS.total_s + LIMITS.connect_s + LIMITS.read_s  # of one call: its last attempt begins in time


def longest_read_s(most_bytes: int) -> float:
    """Return how long a document of at most so many bytes may keep `DocumentObjects.read` waiting, if S3 has it.

    To look for it, then to read it: each call repeats what fails, and a body is given up for its pace only between two
    signs of life.
    """
    return _SILENCE_S + _SILENCE_S + LIMITS.transfer_limit_s(most_bytes) + LIMITS.read_s


class DocumentObjects:
    """Reads documents from S3, and from files where a run names them. Thread-safe."""

    def __init__(self) -> None:
        self._stores: dict[str, ObjectStore] = {"s3": S3Store(LIMITS), "file": LocalStore()}

    def read(self, which: str | ObjectInfo, most_bytes: int) -> bytes:
        """Return the bytes of an object, by its address or as it was listed. Blocks.

        Raises:
            ItemFailed: `document_too_large`, `object_not_found`, `store_forbidden`, `store_unavailable`, or
                `input_changed`: it is no longer the one that was listed.
        """
        try:
            return self._read(which, most_bytes)
        except NotFound:
            raise ItemFailed(ErrorCode.OBJECT_NOT_FOUND, "there is no such object; upload it, then send it") from None
        except Forbidden:
            raise ItemFailed(ErrorCode.STORE_FORBIDDEN, "the store refuses the worker's credentials") from None
        except StorageError as error:
            if isinstance(error, Changed) and isinstance(which, ObjectInfo):
                text = "the object is no longer the one that was listed; run anew for what has changed"
                raise ItemFailed(ErrorCode.INPUT_CHANGED, text) from None
            text = f"the store gave no good answer ({type(error).__name__}); send the document again"
            raise ItemFailed(ErrorCode.STORE_UNAVAILABLE, text) from None

    def _read(self, which: str | ObjectInfo, most_bytes: int) -> bytes:
        store = self._stores[scheme_of(which if isinstance(which, str) else which.uri)]
        info = store.info(which) if isinstance(which, str) else which
        if info.size_bytes > most_bytes:
            text = f"the document has {info.size_bytes} bytes, and {most_bytes} are allowed"
            raise ItemFailed(ErrorCode.DOCUMENT_TOO_LARGE, text)
        with store.open(info, read_ahead_bytes=most_bytes) as content:
            return content.read()
