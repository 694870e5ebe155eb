"""Ranges of queue offsets against a set of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.broker.pop import spans
from maxq.broker.pop.spans import Spans

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=30)


@given(RANGES)
def test_a_span_set_has_what_was_added_in_as_few_ranges_as_there_can_be(ranges: list[tuple[int, int]]) -> None:
    kept, naive = Spans(), set[int]()
    for start, size in ranges:
        kept.add(start, start + size)
        naive |= set(range(start, start + size))
    assert {offset for offset in range(80) if offset in kept} == naive
    assert len(list(kept)) == sum(offset - 1 not in naive for offset in naive)
    assert list(Spans(kept.bounds())) == list(kept)


def test_the_lowest_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_SPANS", 3)
    kept = Spans()
    for start in (10, 20, 30, 0, 40):
        kept.add(start, start + 1)
    assert list(kept) == [(20, 21), (30, 31), (40, 41)]
