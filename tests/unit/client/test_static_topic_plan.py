"""Which broker is to lead which global queue."""

import pytest

from maxq.client.admin.static_topic_plan import BrokerPart, leaders, plan_queues, plan_remapping, round_up
from maxq.errors import ClientError

A, B, C = "broker-a", "broker-b", "broker-c"


def load(parts: dict[str, BrokerPart]) -> dict[str, int]:
    found = leaders(parts)
    return {name: sum(leader == name for leader in found.values()) for name in sorted(set(found.values()))}


def test_queues_are_shared_out_evenly_and_each_has_a_physical_queue_of_its_own() -> None:
    plan = plan_queues("T", 8, [A, B, C], {}, now_ms=5_000)
    assert sorted(load(plan.parts).values()) == [2, 3, 3]
    assert sorted(leaders(plan.parts)) == list(range(8))
    for part in plan.parts.values():
        ids = sorted(items[0].queue_id for items in part.mapping.hosted_queues.values())
        assert ids == list(range(part.config.write_queue_nums)) == list(range(part.config.read_queue_nums))
        assert (part.mapping.epoch, part.mapping.total_queues) == (5_000, 8)


def test_more_queues_keep_those_that_are_there() -> None:
    parts = plan_queues("T", 3, [A], {}, now_ms=1).parts
    before = leaders(parts)
    grown = plan_queues("T", 6, [A, B], parts, now_ms=2).parts
    after = leaders(grown)
    assert {queue: after[queue] for queue in before} == before
    assert load(grown) == {A: 3, B: 3}
    assert grown[A].mapping.epoch == 1_001  # at least a second on


@pytest.mark.parametrize("total", [2, 3])
def test_queues_are_never_taken_away(total: int) -> None:
    parts = plan_queues("T", 3, [A], {}, now_ms=1).parts
    with pytest.raises(ClientError, match=f"has 3 queues: a static topic can only get more, {total} were asked for"):
        plan_queues("T", total, [A], parts, now_ms=2)


def test_all_brokers_of_a_topic_must_be_named() -> None:
    parts = plan_queues("T", 4, [A, B], {}, now_ms=1).parts
    with pytest.raises(ClientError, match="the topic is on broker-b too"):
        plan_queues("T", 8, [A], parts, now_ms=2)


def test_remapping_moves_as_few_as_possible() -> None:
    parts = plan_queues("T", 6, [A, B], {}, now_ms=1).parts
    before = leaders(parts)
    plan = plan_remapping("T", [A, B, C], parts, now_ms=2)
    after = leaders(plan.parts)
    assert load(plan.parts) == {A: 2, B: 2, C: 2}
    assert sum(before[queue] != after[queue] for queue in before) == 2
    assert (plan.map_in, plan.map_out) == ({C}, {A, B})
    moved = next(queue for queue in before if before[queue] != after[queue])
    items = plan.parts[C].mapping.hosted_queues[moved]
    assert [(item.bname, item.gen, item.logic_offset) for item in items] == [(before[moved], 0, 0), (C, 1, -1)]
    assert plan.parts[before[moved]].mapping.hosted_queues[moved] is items


def test_everything_can_move_and_come_back_to_new_physical_queues() -> None:
    parts = plan_queues("T", 2, [A], {}, now_ms=1).parts
    there = plan_remapping("T", [B], parts, now_ms=2)
    for items in there.parts[B].mapping.hosted_queues.values():
        items[-1].logic_offset = 10_000
    back = plan_remapping("T", [A], there.parts, now_ms=3)
    assert load(back.parts) == {A: 2}
    assert sorted(items[-1].queue_id for items in back.parts[A].mapping.hosted_queues.values()) == [2, 3]
    assert back.parts[A].config.write_queue_nums == 4


def test_an_ordinary_topic_cannot_be_remapped() -> None:
    with pytest.raises(ClientError, match="topic T is not static"):
        plan_remapping("T", [A], {}, now_ms=1)


def test_mappings_that_contradict_each_other_are_refused() -> None:
    parts = plan_queues("T", 4, [A, B], {}, now_ms=1).parts
    parts[A].mapping.epoch += 1
    with pytest.raises(ClientError, match="differ in epoch"):
        plan_remapping("T", [A], parts, now_ms=2)


@pytest.mark.parametrize(
    ("end", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (9_999, 20_000), (12_000, 20_000)]
)
def test_a_new_part_begins_at_least_half_a_block_behind_the_old_one(end: int, begin: int) -> None:
    assert round_up(end) == begin
