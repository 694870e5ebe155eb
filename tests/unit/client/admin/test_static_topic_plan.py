"""Which broker is to lead which global queue."""

import pytest

from maxq.client.admin.static_topic_plan import (
    BrokerPart,
    leaders,
    plan_queues,
    plan_remapping,
    plan_rest,
    round_up,
    total_queues,
)
from maxq.errors import ClientError
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicConfig

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
    assert grown[A].mapping.epoch == 2


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


# --- a command that ended in the middle ---


def part(name: str, epoch: int, *items: LogicQueueMappingItem) -> BrokerPart:
    """With queue 0, if it has any."""
    chains = {0: list(items)} if items else {}
    mapping = TopicQueueMappingDetail("T", "__global__", 1, name, epoch, False, None, chains)
    return BrokerPart(TopicConfig("T", 1, 1), mapping)


def first(end: int = -1) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(0, 3, A, 0, 0, end)


def second(begin: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(1, 0, B, begin)


def test_nothing_is_left_of_a_command_that_was_carried_out() -> None:
    parts = {A: part(A, 5, first(7), second(10_000)), B: part(B, 5, first(7), second(10_000)), C: part(C, 5)}
    assert plan_rest("T", parts, now_ms=9) is None


def test_a_queue_whose_old_leader_was_not_told_is_moved_on() -> None:
    parts = {A: part(A, 5, first()), B: part(B, 6, first(), second(-1))}
    rest = plan_rest("T", parts, now_ms=9)
    assert rest is not None
    assert (rest.map_in, rest.map_out) == ({B}, {A})
    old, new = (parts[name].mapping.hosted_queues[0] for name in (A, B))
    assert old == new and old[-1] is new[-1]  # both learn the place
    assert leaders(parts) == {0: B}
    assert {one.mapping.epoch for one in parts.values()} == {9}


def test_the_place_that_one_broker_has_been_told_is_the_place() -> None:
    parts = {A: part(A, 6, first(), second(-1)), B: part(B, 6, first(7), second(10_000))}
    rest = plan_rest("T", parts, now_ms=9)
    assert rest is not None
    assert (rest.map_in, rest.map_out) == (set(), set())
    assert parts[A].mapping.hosted_queues[0] == parts[B].mapping.hosted_queues[0] == [first(7), second(10_000)]


def test_a_broker_without_the_queue_is_told_of_the_epoch_only() -> None:
    parts = {A: part(A, 6, first(7), second(10_000)), B: part(B, 6, first(7), second(10_000)), C: part(C, 5)}
    rest = plan_rest("T", parts, now_ms=9)
    assert rest is not None and not rest.map_in
    assert parts[C].mapping.epoch == parts[A].mapping.epoch
    assert not parts[C].mapping.hosted_queues


def test_an_earlier_leader_keeps_the_chain_that_it_knows() -> None:
    """It passed the queue on, and its successor did so, too."""
    third = LogicQueueMappingItem(2, 0, C, 20_000)
    parts = {
        A: part(A, 5, first(7), second(10_000)),
        B: part(B, 5, first(7), second(10_000), third),
        C: part(C, 5, first(7), second(10_000), third),
    }
    assert plan_rest("T", parts, now_ms=9) is None


def test_a_part_that_has_expired_does_not_come_back() -> None:
    parts = {A: part(A, 5, first(7), second(10_000)), B: part(B, 5, second(10_000))}
    assert plan_rest("T", parts, now_ms=9) is None


def test_two_leaders_of_one_generation_are_no_rest() -> None:
    other = LogicQueueMappingItem(1, 0, C, 10_000)
    parts = {B: part(B, 5, first(), second(10_000)), C: part(C, 5, first(), other)}
    with pytest.raises(ClientError, match="queue 0 is led by broker-b and by broker-c"):
        plan_rest("T", parts, now_ms=9)


# --- an older topic of the name ---


def test_all_items_know_when_the_topic_was_made() -> None:
    parts = plan_queues("T", 2, [A], {}, now_ms=5).parts
    plan_queues("T", 4, [A, B], parts, now_ms=7)
    plan_remapping("T", [C], parts, now_ms=9)
    chains = [items for one in parts.values() for items in one.mapping.hosted_queues.values()]
    assert {item.time_of_start for items in chains for item in items} == {5}


@pytest.mark.parametrize("old_queues", [1, 6])
@pytest.mark.parametrize("is_known", [True, False])
def test_queues_of_an_older_topic_of_the_name_are_not_taken_for_those_of_the_topic(
    old_queues: int, is_known: bool
) -> None:
    """A broker that was away when the topic was deleted brings its old chains back."""
    old = plan_queues("T", old_queues, [A, B] if old_queues > 1 else [B], {}, now_ms=5).parts
    parts = plan_queues("T", 2, [A], {}, now_ms=7).parts
    parts[B] = old[B]
    if not is_known:  # an earlier version or RocketMQ has made it
        for items in parts[B].mapping.hosted_queues.values():
            items[0].time_of_start = -1
    for command in (
        lambda: plan_rest("T", parts, now_ms=9),
        lambda: plan_queues("T", 7, [A, B], parts, now_ms=9),
        lambda: plan_remapping("T", [A, B], parts, now_ms=9),
    ):
        with pytest.raises(
            ClientError, match=r"broker-b still has an older topic of the name T, which was deleted .*: delete it there"
        ):
            command()


# --- a broker that is away ---


@pytest.mark.parametrize("total", [3, 4])
def test_queues_of_a_broker_that_is_away_are_not_made_anew(total: int) -> None:
    parts = plan_queues("T", 3, [A, B, C], {}, now_ms=1).parts
    del parts[C]
    with pytest.raises(ClientError, match=r"of the 3 queues of topic T no broker that has a master now leads 2: start"):
        plan_queues("T", total, [A, B], parts, now_ms=2)
    plan_queues("T", total, [A, B], parts, now_ms=2, force=True)
    assert sorted(leaders(parts)) == list(range(total))


def test_queues_of_a_broker_that_is_away_are_not_passed_over_in_silence_when_all_are_to_move() -> None:
    parts = plan_queues("T", 3, [A, B, C], {}, now_ms=1).parts
    del parts[C]
    with pytest.raises(ClientError, match="no broker that has a master now leads 2"):
        plan_remapping("T", [B], parts, now_ms=2)
    plan = plan_remapping("T", [B], parts, now_ms=2, force=True)
    assert leaders(plan.parts) == {0: B, 1: B}
    assert total_queues(plan.parts) == 3


def test_queues_that_an_interrupted_command_left_are_kept() -> None:
    """It has told one broker of its new queue, and nobody yet that there are more."""
    parts = plan_queues("T", 2, [A], {}, now_ms=1).parts
    plan_queues("T", 4, [A, B], parts, now_ms=2)
    del parts[B]
    parts[A].mapping.total_queues = 2
    parts[A].mapping.hosted_queues[3] = [LogicQueueMappingItem(0, 2, A)]
    with pytest.raises(ClientError, match="ask for 4 at least, 3 were asked for"):
        plan_queues("T", 3, [A, B], parts, now_ms=3)
    plan_queues("T", 4, [A, B], parts, now_ms=3)
    assert leaders(parts) == {0: A, 1: A, 2: B, 3: A}


def test_the_newest_mapping_says_how_many_queues_there_are() -> None:
    parts = {A: part(A, 5, first()), B: part(B, 4)}
    parts[B].mapping.total_queues = 8
    assert total_queues(parts) == 1
    assert plan_rest("T", parts, now_ms=9) is not None
    assert [one.mapping.total_queues for one in parts.values()] == [1, 1]
