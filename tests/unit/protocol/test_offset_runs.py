"""Offsets as ranges in the answer of a bulk pull."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.protocol.offset_runs import read_runs, written_runs


def test_ranges_are_short() -> None:
    assert written_runs([12, 35, *range(20, 34)]) == "12,20-33,35"
    assert read_runs("12,20-33,35") == [(12, 13), (20, 34), (35, 36)]
    assert (written_runs([]), read_runs("")) == ("", [])


@given(st.sets(st.integers(0, 100)))
def test_what_is_written_is_read(numbers: set[int]) -> None:
    assert {n for first, end in read_runs(written_runs(numbers)) for n in range(first, end)} == numbers
