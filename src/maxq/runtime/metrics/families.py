"""Families: the numbers of a MetricsRegistry with their labels, for exporters that do not send its text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Point(NamedTuple):
    """The value of a counter or a gauge for one set of labels."""

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
    """One metric. `kind` is counter, gauge or histogram; `points` are for the first two, `buckets` for the last.
    `about` is the help text."""

    name: str
    kind: str
    points: list[Point] = field(default_factory=list)
    buckets: list[Buckets] = field(default_factory=list)
    about: str = ""


def portions(found: Iterable[Family], most: int) -> Iterator[list[Family]]:
    """Yield the families in parts of at most `most` label sets; a family may be cut."""
    part: list[Family] = []
    room = most
    for family in found:
        rows = max(len(family.points), len(family.buckets))
        start = 0
        while start < rows:
            end = start + room
            part.append(replace(family, points=family.points[start:end], buckets=family.buckets[start:end]))
            room -= min(end, rows) - start
            start = end
            if room == 0:
                yield part
                part, room = [], most
    if part:
        yield part
