"""The stores of a run: one of each kind, however many files are on it.

Inputs and output may be in stores of different kinds. It knows nothing of what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.storage.objects import scheme_of, store_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.storage.objects import ObjectStore


class Stores:
    """Makes a store when it is first asked for, and keeps it with its connections. Thread-safe.

    Args:
        make: returns a new store for a URI.
    """

    def __init__(self, make: Callable[[str], ObjectStore] = store_for) -> None:
        self._make = make
        self._by_scheme: dict[str, ObjectStore] = {}

    def of(self, uri: str) -> ObjectStore:
        """Return the store that `uri` is in.

        Raises:
            BadLocation: nothing here reads this kind of URI.
        """
        scheme = scheme_of(uri)
        known = self._by_scheme.get(scheme)
        # Of two threads that come first, both get the store that was set.
        return known or self._by_scheme.setdefault(scheme, self._make(uri))
