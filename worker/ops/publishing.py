"""Turns tallies into what Prometheus reads; the only place that knows prometheus-client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from worker.metrics import CATALOGUE, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from worker.metrics import Metric, Side
    from worker.tallies import Tallies


class Publisher:
    """Publishes one side's part of the catalogue, and what prometheus-client says of process and platform.

    Args:
        tallies: the values.
        side: which part.
    """

    def __init__(self, tallies: Tallies, side: Side) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Ours(tallies, side))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return what a scraper that accepts such content gets, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Ours(Collector):
    def __init__(self, tallies: Tallies, side: Side) -> None:
        self._tallies = tallies
        self._metrics = [metric for metric in CATALOGUE if metric.side is side]

    def describe(self) -> Iterator[Family]:
        """Name what there will be, without a look at the values."""
        return (_family(metric) for metric in self._metrics)

    def collect(self) -> Iterator[Family]:
        for metric in self._metrics:
            family = _family(metric)
            if isinstance(family, HistogramMetricFamily):
                for labels, held in self._tallies.distributions(metric).items():
                    bounds = [*map(str, map(float, metric.buckets)), "+Inf"]
                    family.add_metric(labels, list(zip(bounds, held.cumulated, strict=True)), held.total)
            else:
                for labels, value in self._tallies.numbers(metric).items():
                    family.add_metric(labels, value)
            yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    if metric.kind is Kind.HISTOGRAM:
        return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
