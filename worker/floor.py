"""Who may run now: any number of batches side by side, or one suspect with the floor to itself."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Floor:
    """A lock for the runners. Thread-safe.

    A message that was in inference when a worker died is suspected of it. It runs while nothing else does, so that the
    next death leaves no doubt and no neighbour is blamed.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._side_by_side = 0
        self._taken = False

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold the floor for one batch. Blocks until it is free."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)
            if alone:
                self._taken = True
                self._changed.wait_for(lambda: self._side_by_side == 0)
            else:
                self._side_by_side += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._taken = False
                else:
                    self._side_by_side -= 1
                self._changed.notify_all()
