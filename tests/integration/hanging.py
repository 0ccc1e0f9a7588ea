"""`python -m tests.integration.hanging worker`: a worker whose fetchers hang once the file HANG_FILE is there.

All of it is quicker: a wait for a message lasts half a second, and a queue that nothing has fetched from for two
seconds counts as not consumed.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tasks.cli import main
from worker import fetching
from worker.fetching import Fetcher
from worker.ops import probes
from worker.ops.health import Limits

if TYPE_CHECKING:
    from worker.quota import Quota

COMMAND: Final = [sys.executable, "-m", "tests.integration.hanging", "worker"]
FETCH_S: Final = 2.0
WAIT_S: Final = 0.5
FILE: Final = "HANG_FILE"


def _hang_if_told(fetcher: Fetcher, wait: Any, room: Quota) -> None:  # noqa: ANN401 - the fetcher's own
    if Path(os.environ[FILE]).exists():
        threading.Event().wait()
    _begin(fetcher, wait, room)


if __name__ == "__main__":
    _begin = Fetcher._begin  # noqa: SLF001 - what an idle fetcher does over and over
    Fetcher._begin = _hang_if_told  # type: ignore[method-assign] # noqa: SLF001 - the fault that is tested
    fetching.WAIT_S = WAIT_S  # type: ignore[misc] # quicker than a test may wait
    probes.Limits = partial(Limits, fetch_s=FETCH_S)  # type: ignore[misc,assignment] # less patience
    main()
