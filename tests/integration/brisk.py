"""`python -m tests.integration.brisk worker`: a worker with a slow model, whose load follows within a second.

A row takes 5 ms, so that a message of 1,000 tickets takes long enough to be looked at.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tasks.cli import main
from worker import loads
from worker.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND: Final = [sys.executable, "-m", "tests.integration.brisk", "worker"]
ROW_S: Final = 0.005
SMOOTHING_S: Final = 0.5


def _call_slowly(engine: Engine, lane: Any, rows: Sequence[Any]) -> Sequence[object]:  # noqa: ANN401 - the engine's own
    time.sleep(ROW_S * len(rows))
    return _call(engine, lane, rows)


if __name__ == "__main__":
    _call = Engine._call  # noqa: SLF001 - where a batch meets its model
    Engine._call = _call_slowly  # type: ignore[method-assign] # noqa: SLF001 - the slow model
    loads.SMOOTHING_S = SMOOTHING_S  # type: ignore[misc] # quicker than a test may wait
    main()
