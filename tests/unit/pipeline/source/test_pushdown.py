"""Conditions of a query become what a batch is planned by; no wanted row fails it."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from maxq.pipeline.options.predicate import ArrayContains
from maxq.pipeline.source.batch_source import Conditions
from maxq.pipeline.source.pushdown import CLOCKS_APART_MS, conditions_of
from maxq.pipeline.wire.pulls import SelectionHint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def decided(*filters: Filter) -> Conditions:
    return conditions_of(filters, with_hint=True)


def test_sets_are_cut_with_each_other() -> None:
    found = decided(In(("topic",), ("A", "B")), EqualTo(("topic",), "B"), EqualTo(("queueId",), 3))
    assert (found.topics, found.queue_ids) == (frozenset("B"), frozenset({3}))
    assert decided(EqualTo(("brokerName",), "b")).brokers == frozenset("b")


@pytest.mark.parametrize(
    ("one", "bounds"),
    [
        (GreaterThan(("queueOffset",), 5), (6, None)),
        (GreaterThanOrEqual(("queueOffset",), 5), (5, None)),
        (LessThan(("queueOffset",), 5), (None, 5)),
        (LessThanOrEqual(("queueOffset",), 5), (None, 6)),
        (EqualTo(("queueOffset",), 5), (5, 6)),
        (In(("queueOffset",), (9, 2, 5)), (2, 10)),
    ],
)
def test_bounds_of_offsets(one: Filter, bounds: tuple[int | None, int | None]) -> None:
    found = decided(one)
    assert (found.first_offset, found.end_offset) == bounds


def test_bounds_meet_in_the_middle() -> None:
    found = decided(
        GreaterThan(("queueOffset",), 5), GreaterThan(("queueOffset",), 9), LessThan(("queueOffset",), 20),
        LessThan(("queueOffset",), 12),
    )  # fmt: skip
    assert (found.first_offset, found.end_offset) == (10, 12)


@pytest.mark.parametrize("micros", [0, 1, 999, 123_000, 999_999])
def test_times_keep_every_millisecond_that_may_match_and_clocks_that_were_set_back(micros: int) -> None:
    moment, ms = NOON + timedelta(microseconds=micros), NOON_MS + micros // 1000
    first, end = ms - CLOCKS_APART_MS, ms + 1 + CLOCKS_APART_MS
    for kind, bounds in (
        (GreaterThan, (first, None)),
        (GreaterThanOrEqual, (first, None)),
        (LessThan, (None, end)),
        (LessThanOrEqual, (None, end)),
        (EqualTo, (first, end)),
    ):
        found = decided(kind(("storeTimestamp",), moment))
        assert (found.first_time, found.end_time) == bounds


def test_tags_and_keys_are_a_hint() -> None:
    tags = In(("tags",), ("A", "B"))
    assert decided(tags).hint == SelectionHint("TAG", "A || B")
    found = decided(tags, ArrayContains(("keys",), "k'1"), ArrayContains(("keys",), "all"))
    assert found.hint == SelectionHint("SQL92", "KEYS CONTAINS 'k''1' AND KEYS CONTAINS 'all' AND TAGS IN ('A', 'B')")
    assert conditions_of([tags], with_hint=False).hint is None


@pytest.mark.parametrize(
    "tag", ["pad ", " pad", "\tpad", "pad\x00", "pad\u00a0", "\u3000pad", " ", "a || b", "*", "", "bad \ufffd", "a|b"]
)
def test_tags_that_brokers_compare_otherwise_are_no_hint(tag: str) -> None:
    """Brokers take blanks off the ends, and "*" and "||" mean something to them."""
    assert decided(EqualTo(("tags",), tag)) == decided(In(("tags",), ("A", tag))) == Conditions()


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "A")),
        EqualTo(("topic",), None),
        IsNotNull(("tags",)),
        EqualTo(("tags",), None),
        EqualTo(("properties", "topic"), "A"),
        GreaterThan(("body",), b"x"),
        In(("queueOffset",), (1, None)),
        EqualTo(("queueOffset",), None),
        GreaterThan(("storeTimestamp",), datetime(2026, 1, 1)),
        ArrayContains(("keys",), ""),
    ],
)
def test_what_is_not_understood_narrows_nothing(one: Filter) -> None:
    assert decided(one) == Conditions()
