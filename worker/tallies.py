"""Counts what a process does, by metric and label values, for little: one lock, taken once for a group.

Whoever counts does so once a batch, a commit or a sweep, never once an item. What is not counted but known, such as how
many messages are held, is asked for when somebody reads. This module knows neither HTTP nor Prometheus.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.metrics import Metric

Labels: TypeAlias = tuple[str, ...]


class Distribution(NamedTuple):
    """What a histogram holds.

    Attributes:
        cumulated: how many values are at most each bound, and, last, how many there are.
        total: their sum.
    """

    cumulated: tuple[int, ...]
    total: float


class _Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tallies:
    """The values of metrics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: defaultdict[Metric, defaultdict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[tuple[Metric, Labels], _Histogram] = {}
        self._watched: dict[Metric, Callable[[], Mapping[Labels, float]]] = {}

    def add(self, *amounts: tuple[Metric, Labels, float]) -> None:
        """Add to counters; by 0 to let a series exist before anything happens."""
        self.note(amounts, ())

    def observe(self, metric: Metric, labels: Labels, values: Iterable[float]) -> None:
        """Add values to a histogram; of none to let it exist."""
        with self._lock:
            histogram = self._histogram(metric, labels)
            for value in values:
                histogram.add(value)

    def note(
        self, amounts: Iterable[tuple[Metric, Labels, float]], values: Iterable[tuple[Metric, Labels, float]]
    ) -> None:
        """Add amounts to counters and values to histograms, all at once."""
        with self._lock:
            for metric, labels, amount in amounts:
                self._numbers[metric][labels] += amount
            for metric, labels, value in values:
                self._histogram(metric, labels).add(value)

    def watch(self, metric: Metric, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Let a gauge be what `read` returns whenever somebody looks; from any thread, so it must not block."""
        self._watched[metric] = read

    def numbers(self, metric: Metric) -> dict[Labels, float]:
        """Return the values of a counter or gauge."""
        read = self._watched.get(metric)
        if read is not None:
            return dict(read())
        with self._lock:
            return dict(self._numbers.get(metric, ()))

    def distributions(self, metric: Metric) -> dict[Labels, Distribution]:
        """Return what a histogram holds."""
        with self._lock:
            return {
                labels: Distribution(tuple(accumulate(histogram.counts)), histogram.total)
                for (of, labels), histogram in self._histograms.items()
                if of is metric
            }

    def _histogram(self, metric: Metric, labels: Labels) -> _Histogram:
        histogram = self._histograms.get((metric, labels))
        if histogram is None:
            histogram = self._histograms[metric, labels] = _Histogram(metric.buckets)
        return histogram
