"""Growth: counters and histograms as what came since a collector last took them (`metricsInDelta`).

Gauges stay as they are. A number that is smaller than it was began anew (a topic was deleted and made again): then all
of it is new. A collector takes a round of metrics in parts; what it did not take counts for the next round.

Source:
    broker/metrics/BrokerMetricsManager.java (AggregationTemporality.DELTA).
"""

from collections.abc import Iterable
from dataclasses import replace

from maxq.runtime.metrics.families import Buckets, Family, Point

_Key = tuple[str, tuple[tuple[str, str], ...]]
_Numbers = dict[_Key, list[float]]


class Growth:
    """Keeps the last number of each label set; for a histogram one for each bucket, and their sum. Its differences are
    what an exporter with delta temporality sends."""

    def __init__(self) -> None:
        self._last: _Numbers = {}
        self._round: _Numbers = {}  # numbers taken in the collection that is under way
        self._part: _Numbers = {}

    def of(self, part: Iterable[Family]) -> list[Family]:
        """Return the same families, minus what earlier rounds have sent."""
        self._part = {}
        return [self._family(family) for family in part]

    def taken(self) -> None:
        """Note that the collector has received the part that `of` returned last."""
        self._round |= self._part

    def end_round(self, *, complete: bool) -> None:
        """End a round. `complete` means that everything was sent, so label sets that did not occur are dropped."""
        self._last = self._round if complete else self._last | self._round
        self._round = {}

    def _family(self, family: Family) -> Family:
        if family.kind == "counter":
            return replace(family, points=[self._point(family.name, row) for row in family.points])
        if family.kind == "histogram":
            return replace(family, buckets=[self._buckets(family.name, row) for row in family.buckets])
        return family

    def _point(self, name: str, row: Point) -> Point:
        (value,) = self._grown(name, row.labels, [row.value])
        return row._replace(value=value)

    def _buckets(self, name: str, row: Buckets) -> Buckets:
        *counts, total = self._grown(name, row.labels, [*row.counts, row.total])
        return row._replace(counts=[int(count) for count in counts], total=total)

    def _grown(self, name: str, labels: dict[str, str], numbers: list[float]) -> list[float]:
        key = (name, tuple(labels.items()))
        self._part[key] = numbers
        before = self._last.get(key)
        if before is None or any(number < old for number, old in zip(numbers, before, strict=True)):
            return numbers
        return [number - old for number, old in zip(numbers, before, strict=True)]
