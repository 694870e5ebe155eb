"""Filters become conditions that no wanted row fails; what is not exact stays with Spark."""

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

from maxq.pipeline.source.batch_source import Conditions
from maxq.pipeline.source.pushdown import conditions_of
from maxq.pipeline.wire.pulls import Hint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def decided(*filters: Filter) -> tuple[Conditions, list[Filter]]:
    return conditions_of(filters, with_hint=True)


def test_sets_are_cut_with_each_other() -> None:
    found, left = decided(In(("topic",), ("A", "B")), EqualTo(("topic",), "B"), EqualTo(("queueId",), 3))
    assert (found.topics, found.queue_ids, left) == (frozenset("B"), frozenset({3}), [])
    assert decided(EqualTo(("brokerName",), "b"))[0].brokers == frozenset("b")


@pytest.mark.parametrize(
    ("one", "bounds"),
    [
        (GreaterThan(("queueOffset",), 5), (6, None)),
        (GreaterThanOrEqual(("queueOffset",), 5), (5, None)),
        (LessThan(("queueOffset",), 5), (None, 5)),
        (LessThanOrEqual(("queueOffset",), 5), (None, 6)),
        (EqualTo(("queueOffset",), 5), (5, 6)),
    ],
)
def test_bounds_of_offsets_are_exact(one: Filter, bounds: tuple[int | None, int | None]) -> None:
    found, left = decided(one)
    assert ((found.first_offset, found.end_offset), left) == (bounds, [])


def test_bounds_meet_in_the_middle() -> None:
    found, _ = decided(
        GreaterThan(("queueOffset",), 5), GreaterThan(("queueOffset",), 9), LessThan(("queueOffset",), 20),
        LessThan(("queueOffset",), 12),
    )  # fmt: skip
    assert (found.first_offset, found.end_offset) == (10, 12)


@pytest.mark.parametrize("micros", [0, 1, 999])
def test_times_keep_every_millisecond_that_may_match_and_stay_with_spark(micros: int) -> None:
    moment = NOON + timedelta(microseconds=micros)
    for kind, first, end in (
        (GreaterThan, NOON_MS, None),
        (GreaterThanOrEqual, NOON_MS, None),
        (LessThan, None, NOON_MS + 1),
        (LessThanOrEqual, None, NOON_MS + 1),
        (EqualTo, NOON_MS, NOON_MS + 1),
    ):
        one = kind(("storeTimestamp",), moment)
        found, left = decided(one)
        assert (found.first_time, found.end_time, left) == (first, end, [one])


def test_tags_and_keys_are_a_hint_and_stay_with_spark() -> None:
    tags, keys = In(("tags",), ("A", "B")), EqualTo(("keys",), ["k'1", "all"])
    found, left = decided(tags)
    assert (found.hint, left) == (Hint("TAG", "A || B"), [tags])
    found, left = decided(tags, keys)
    expected = "KEYS CONTAINS 'k''1' AND KEYS CONTAINS 'all' AND TAGS IN ('A', 'B')"
    assert (found.hint, left) == (Hint("SQL92", expected), [tags, keys])
    assert conditions_of([tags], with_hint=False)[0].hint is None


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "A")),
        EqualTo(("topic",), None),
        IsNotNull(("tags",)),
        EqualTo(("tags",), None),
        EqualTo(("tags",), "a || b"),
        EqualTo(("tags",), "*"),
        EqualTo(("keys",), []),
        EqualTo(("properties", "topic"), "A"),
        GreaterThan(("body",), b"x"),
        In(("queueOffset",), (1, 2)),
        EqualTo(("queueOffset",), None),
        GreaterThan(("storeTimestamp",), datetime(2026, 1, 1)),
    ],
)
def test_what_is_not_understood_narrows_nothing(one: Filter) -> None:
    assert decided(one) == (Conditions(), [one])
