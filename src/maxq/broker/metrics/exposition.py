"""The text of a MetricsRegistry read back as numbers, for exporters that send something else than text.

Only what runtime/metrics/registry.py writes is understood: a TYPE line before each metric, labels in quotes, the lines
of one histogram's label set one after the other with `_sum` last.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_BUCKET: Final = "_bucket"


class Point(NamedTuple):
    """One label set of a counter or gauge."""

    labels: dict[str, str]
    value: float


class Buckets(NamedTuple):
    """One label set of a histogram: how many values lie in each bucket (the last one: above all bounds), their sum."""

    labels: dict[str, str]
    bounds: list[float]
    counts: list[int]
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `kind` is counter, gauge or histogram; `points` are for the first two, `buckets` for the last."""

    name: str
    kind: str
    points: list[Point] = field(default_factory=list)
    buckets: list[Buckets] = field(default_factory=list)


def families(lines: Iterable[str]) -> Iterator[Family]:
    """Of the lines of an exposition, in their order."""
    family: Family | None = None
    bounds: list[float] = []
    counts: list[int] = []
    for line in lines:
        if line.startswith("# TYPE "):
            if family is not None:
                yield family
            _, _, name, kind = line.split(" ")
            family = Family(name, kind)
        if family is None or line.startswith("#") or not line:
            continue
        head, _, value = line.rpartition(" ")
        name, _, text = head.partition("{")
        if family.kind != "histogram":
            family.points.append(Point(_labels(text), float(value)))
        elif name.endswith(_BUCKET):
            bounds.append(float(_labels(text)["le"]))
            counts.append(int(float(value)))
        elif name.endswith("_sum"):
            each = [count - before for count, before in zip(counts, [0, *counts[:-1]], strict=True)]
            family.buckets.append(Buckets(_labels(text), bounds[:-1], each, float(value)))
            bounds, counts = [], []
    if family is not None:
        yield family


def portions(found: Iterable[Family], most: int) -> Iterator[list[Family]]:
    """The same in parts of at most `most` label sets; a family may be cut."""
    part: list[Family] = []
    room = most
    for family in found:
        rows = max(len(family.points), len(family.buckets))
        start = 0
        while start < rows:
            end = start + room
            part.append(Family(family.name, family.kind, family.points[start:end], family.buckets[start:end]))
            room -= min(end, rows) - start
            start = end
            if room == 0:
                yield part
                part, room = [], most
    if part:
        yield part


def _labels(text: str) -> dict[str, str]:
    return {
        match[1]: _ESCAPE.sub(_unescaped, match[2]) if "\\" in match[2] else match[2] for match in _LABEL.finditer(text)
    }


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


# Growth: counters and histograms as what came since a collector last took them (`metricsInDelta`).
#
# Gauges stay as they are. A number that is smaller than it was began anew (a topic was deleted and made again): then
# all of it is new. A collector takes a round of metrics in parts; what it did not take counts for the next round.
#
# Source:
#     broker/metrics/BrokerMetricsManager.java (AggregationTemporality.DELTA).

_Key = tuple[str, tuple[tuple[str, str], ...]]
_Numbers = dict[_Key, list[float]]


class Growth:
    """Remembers one number for each label set; for a histogram one for each bucket, and their sum."""

    def __init__(self) -> None:
        self._last: _Numbers = {}
        self._round: _Numbers = {}  # taken in the round that is under way
        self._part: _Numbers = {}

    def of(self, part: Iterable[Family]) -> list[Family]:
        """The same families, less what was taken in earlier rounds."""
        self._part = {}
        return [self._family(family) for family in part]

    def taken(self) -> None:
        """The part that was last asked for is with the collector."""
        self._round |= self._part

    def end_round(self, *, complete: bool) -> None:
        """`complete`: all was taken, so label sets that did not occur are gone."""
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
