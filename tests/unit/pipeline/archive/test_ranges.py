"""Arithmetic of ranges against sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.pipeline.archive.ranges import Range, intersect, overlaps, size, subtract, union

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


def offsets(ranges: list[Range]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


def is_normal(ranges: list[Range]) -> bool:
    """Sorted, not empty, not adjacent."""
    ends = [-2, *(offset for pair in ranges for offset in pair)]
    return all(first <= last for first, last in ranges) and all(
        ends[at] + 1 < ends[at + 1] for at in range(0, len(ends) - 1, 2)
    )


@given(RANGES, RANGES)
def test_ranges_are_sets_of_offsets(some: list[Range], others: list[Range]) -> None:
    for found, wanted in (
        (union(some), offsets(some)),
        (subtract(some, others), offsets(some) - offsets(others)),
        (intersect(some, others), offsets(some) & offsets(others)),
    ):
        assert offsets(found) == wanted
        assert size(found) == len(wanted)
        assert is_normal(found)


@given(st.lists(RANGES, max_size=5))
def test_an_overlap_is_named_wherever_two_owners_have_an_offset(owners: list[list[Range]]) -> None:
    ranges = [(first, last, owner) for owner, some in enumerate(owners) for first, last in union(some)]
    named = {
        (offset, *sorted((one.one, one.other))) for one in overlaps(ranges) for offset in range(one.first, one.last + 1)
    }
    expected = {
        (offset, one, other)
        for one in range(len(owners))
        for other in range(one + 1, len(owners))
        for offset in offsets(owners[one]) & offsets(owners[other])
    }
    assert named == expected
