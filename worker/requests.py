"""What the pool asks Celery's requests, and tells them: when they were enqueued and expire, what became of them.

The three that tell run on Celery's event loop.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from schemas.names import ENQUEUED_AT_HEADER, Band, band_of
from worker.jobs import Charge
from worker.metrics import JOBS

if TYPE_CHECKING:
    from worker.tallies import Tallies

IMPLAUSIBLE_UNIX_S: Final = 1e11  # no date, but the milliseconds of one


def stated_wait_s(request: Any) -> float | None:  # noqa: ANN401 - Celery's request
    """Return how long the message has waited by its producer's word; None without a plausible one."""
    stated = request.message.headers.get(ENQUEUED_AT_HEADER)
    if type(stated) in {int, float} and 0 <= stated < IMPLAUSIBLE_UNIX_S:
        waited_s: float = max(0.0, time() - stated)
        return waited_s
    return None


def deadline_s(request: Any) -> float | None:  # noqa: ANN401 - Celery's request
    """Return when the request expires, in monotonic seconds."""
    if request.expires is None:
        return None
    left: float = (request.expires - datetime.now(UTC if request.expires.tzinfo else None)).total_seconds()
    return monotonic() + left


def charge_of(request: Any) -> Charge:  # noqa: ANN401 - Celery's request
    """Return whose work it is; a priority that is none counts as the most urgent."""
    info = request.delivery_info
    try:
        band = band_of(info["priority"])
    except ValueError:
        band = Band.INTERACTIVE
    return Charge(info["routing_key"], int(band))


def accepted(request: Any, now_s: float) -> None:  # noqa: ANN401 - Celery's request
    """Tell that it runs since `now_s`, monotonic."""
    request.on_accepted(os.getpid(), now_s)


def ended(request: Any, answer: tuple[int, object, float]) -> None:  # noqa: ANN401 - Celery's request
    """Tell what it came to."""
    if not request._already_revoked:  # noqa: SLF001 - a job revoked while it ran has had its end
        request.on_success(answer)


def revoked(request: Any) -> None:  # noqa: ANN401 - Celery's request
    """Let it see that it was revoked or has expired."""
    if not request.revoked():  # the clocks disagree by a hair: let the broker decide
        request.reject(requeue=True)


def count_revoked(tallies: Tallies, *, sender: Any, expired: bool, **_: object) -> None:  # noqa: ANN401 - Celery's task
    """Count a message that expired or was called off; takes what Celery's signal `task_revoked` sends."""
    tallies.add((JOBS, (sender.name, "expired" if expired else "cancelled"), 1))
