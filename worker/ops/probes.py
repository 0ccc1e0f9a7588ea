"""What a worker answers over HTTP: is it alive, is it ready, and what it has counted."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic_core import to_json

from worker.metrics import READY, Side
from worker.ops.health import Limits, Verdict, live, ready
from worker.ops.http import JSON, Answer, Request, Server, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.ops.publishing import Publisher
    from worker.settings import Settings
    from worker.tallies import Tallies
    from worker.vitals import Vitals


class Probes:
    """The pages of a worker. None of them blocks.

    Args:
        vitals: its signs of life.
        limits: how long a silence may last.
        publisher: of its metrics.
    """

    def __init__(self, vitals: Vitals, limits: Limits, publisher: Publisher) -> None:
        self._vitals = vitals
        self._limits = limits
        self._publisher = publisher

    def respond(self, request: Request) -> Answer:
        """Return a page."""
        match request.path:
            case "/live":
                return verdict_page(live(self._vitals.facts(), self._limits))
            case "/ready":
                return verdict_page(ready(self._vitals.facts(), self._limits))
            case "/metrics":
                return metrics_page(self._publisher, request)
            case _:
                return not_found(request)


@contextmanager
def probing(settings: Settings, vitals: Vitals, tallies: Tallies) -> Iterator[None]:
    """Answer a worker's probes inside the block, if the settings name a port.

    Raises:
        ConfigError: it cannot listen there.
    """
    if not settings.http_port:
        yield
        return
    from worker.ops.publishing import Publisher  # noqa: PLC0415 - a worker without a port does without the library

    limits = Limits(call_s=settings.batch_timeout_s + settings.stuck_grace_s, broker_s=settings.lease_s)
    tallies.watch(READY, lambda: {(): float(ready(vitals.facts(), limits).ok)})
    probes = Probes(vitals, limits, Publisher(tallies, Side.WORKER))
    with Server(settings.http_host, settings.http_port, probes.respond):
        yield


def verdict_page(verdict: Verdict) -> Answer:
    """Return 200 if all is well, else 503, with the reasons as JSON."""
    body = to_json({"ok": verdict.ok, "reasons": verdict.reasons}) + b"\n"
    return Answer(body, JSON, HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE)


def metrics_page(publisher: Publisher, request: Request) -> Answer:
    """Return the metrics in the form that the scraper asks for."""
    return Answer(*publisher.text(request.accept))
