"""Offsets come back from JSON as they went; splits keep every offset once; limits are kept and shared fairly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import ConfigError
from maxq.pipeline.source.offsets import OffsetRange, from_json, group_small, limit_rows, ranges_between, split, to_json
from maxq.pipeline.source.scan import wire_partitions
from maxq.protocol.message.message_queue import MessageQueue

QUEUES = st.builds(MessageQueue, st.sampled_from("TU"), st.sampled_from(["a", "b"]), st.integers(0, 3))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 5_000))
RANGES = st.dictionaries(QUEUES, st.tuples(st.integers(0, 50_000), st.integers(1, 30_000)), max_size=8).map(
    lambda found: [OffsetRange(queue, first, first + size) for queue, (first, size) in sorted(found.items())]
)
PARTS = st.none() | st.integers(1, 60)


@given(OFFSETS)
def test_offsets_survive_the_checkpoint(offsets: dict[MessageQueue, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_equal_offsets_are_equal_text() -> None:
    one, other = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
    assert json.dumps(to_json({one: 1, other: 2})) == json.dumps(to_json({other: 2, one: 1}))


@pytest.mark.parametrize("value", [{"T": 5}, {"T": {"a": {"0": "x"}}}, {"T": {"a": {"x": 1}}}, {"T": {"a": {"0": -1}}}])
def test_the_checkpoint_of_another_source_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not those of this source"):
        from_json(value)


@given(RANGES, PARTS, st.none() | st.integers(100, 40_000))
def test_any_split_has_every_offset_once(ranges: list[OffsetRange], parts: int | None, most: int | None) -> None:
    pieces = split(ranges, min_parts=parts, max_records=most)
    joined: list[OffsetRange] = []
    for piece in pieces:
        assert piece.size > 0
        assert most is None or piece.size <= most
        if joined and joined[-1].queue == piece.queue and joined[-1].last == piece.first:
            joined[-1] = joined[-1]._replace(last=piece.last)
        else:
            joined.append(piece)
    assert joined == ranges
    assert parts is None or len(pieces) >= min(parts, sum(one.size for one in ranges))


@given(RANGES, PARTS, st.none() | st.integers(100, 40_000))
def test_partitions_hold_the_same_ranges_and_keep_the_limits(
    ranges: list[OffsetRange], parts: int | None, most: int | None
) -> None:
    found = wire_partitions(ranges, min_parts=parts, max_records=most)
    pieces = sorted(OffsetRange(one.queue, one.first, one.last) for partition in found for one in partition.ranges)
    assert pieces == sorted(split(ranges, min_parts=parts, max_records=most))
    for partition in found:
        assert len({one.broker_name for one in partition.ranges}) == 1
        assert most is None or sum(one.last - one.first for one in partition.ranges) <= most
    assert parts is None or len(found) >= min(parts, len(pieces))


def test_many_small_ranges_share_a_task() -> None:
    ranges = [OffsetRange(MessageQueue("T", "a", n), 0, 25) for n in range(200)]
    assert len(wire_partitions(ranges)) == 1
    assert len(wire_partitions(ranges, min_parts=7)) == 8


@given(OFFSETS, OFFSETS, st.integers(1, 3_000))
def test_a_limit_is_used_up_and_never_passed(
    start: dict[MessageQueue, int], more: dict[MessageQueue, int], limit: int
) -> None:
    latest = {queue: start.get(queue, 0) + size for queue, size in more.items()}
    end = limit_rows(start, latest, limit)
    taken = {queue: end[queue] - start.get(queue, 0) for queue in latest}
    assert sum(taken.values()) == min(limit, sum(more.values()))
    assert all(0 <= taken[queue] <= more[queue] for queue in latest)


def test_shares_follow_what_each_queue_has() -> None:
    queues = [MessageQueue("T", "a", n) for n in range(4)]
    latest = dict(zip(queues, (1000, 1000, 1000, 0), strict=True))
    assert sorted(limit_rows({}, latest, 100).values()) == [0, 33, 33, 34]
    assert limit_rows({}, dict.fromkeys(queues, 4_000), 100) == dict.fromkeys(queues, 25)


def test_ranges_between_offsets() -> None:
    a, b, c, d = (MessageQueue("T", "a", n) for n in range(4))
    start, end = {a: 5, b: 7, c: 9}, {a: 8, b: 7, c: 2, d: 3}
    assert ranges_between(start, end) == [OffsetRange(a, 5, 8), OffsetRange(c, 0, 2), OffsetRange(d, 0, 3)]


def test_small_queues_are_spread_over_as_many_tasks_as_are_asked_for() -> None:
    ranges = [OffsetRange(MessageQueue("T", "b", number), 0, 600) for number in range(16)]
    assert [len(task) for task in group_small(ranges)] == [16]
    assert [len(task) for task in group_small(ranges, min_parts=4)] == [4] * 4
    assert [len(task) for task in group_small(ranges, min_parts=4, max_records=1200)] == [2] * 8
