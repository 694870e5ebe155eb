"""Arithmetic of offset ranges: sets of integers as sorted, disjoint, non-adjacent pairs, first and last included."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Range = tuple[int, int]


class Overlap(NamedTuple):
    """Offsets that are in two of the numbered ranges."""

    first: int
    last: int
    one: int
    other: int


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return all offsets of the ranges, which may overlap and come in any order."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def subtract(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return the offsets of `ranges` that are not in `taken`."""
    away = union(taken)
    found: list[Range] = []
    at = 0
    for first, last in union(ranges):
        while at < len(away) and away[at][1] < first:
            at += 1
        here = at
        while here < len(away) and away[here][0] <= last:
            if away[here][0] > first:
                found.append((first, away[here][0] - 1))
            first = away[here][1] + 1
            here += 1
        if first <= last:
            found.append((first, last))
    return found


def intersect(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the offsets that are both in `ranges` and in `others`."""
    both = union(ranges)
    return subtract(both, subtract(both, others))


def size(ranges: Iterable[Range]) -> int:
    """Return the number of offsets in ranges that do not overlap."""
    return sum(last - first + 1 for first, last in ranges)


def overlaps(ranges: Sequence[tuple[int, int, int]]) -> list[Overlap]:
    """Return the offsets that more than one owner has.

    Args:
        ranges: (first, last, owner), in any order; the ranges of one owner are disjoint.

    Returns:
        Every overlap of a range with the ranges before it, by first offset.
    """
    found: list[Overlap] = []
    open_ones: list[tuple[int, int, int]] = []
    for first, last, owner in sorted(ranges):
        open_ones = [one for one in open_ones if one[1] >= first]
        found += [Overlap(first, min(last, one[1]), one[2], owner) for one in open_ones]
        open_ones.append((first, last, owner))
    return found
