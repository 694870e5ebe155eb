"""Spans: a set of queue offsets that are mostly neighbours, kept as ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

MOST_SPANS: Final = 10_000


class Spans:
    """Ranges of queue offsets, at most MOST_SPANS: beyond that, the lowest offsets are forgotten."""

    def __init__(self, bounds: Iterable[int] = ()) -> None:
        """`bounds` is a result of `bounds` of another instance."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        flat = list(bounds)
        for start, end in zip(flat[::2], flat[1::2], strict=True):
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Add the queue offsets from `start` up to, but not including, `end`."""
        if start >= end:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:  # the new range touches these ranges
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        if len(self._starts) > MOST_SPANS:
            del self._starts[0], self._ends[0]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def bounds(self) -> list[int]:
        """Start and end of each range, in one list."""
        return [bound for span in self for bound in span]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)
