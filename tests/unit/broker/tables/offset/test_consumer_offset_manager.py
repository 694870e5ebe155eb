"""Offsets of groups: commits, resets, what tools ask, and the two files."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager, tells_of_acting
from maxq.broker.tables.offset.lmq_consumer_offset_manager import (
    LmqConsumerOffsetManager,
    create_consumer_offset_manager,
)
from maxq.broker.tables.offset.offset_table import keys_on
from maxq.broker.tables.offset.operator_changes import MOST, OperatorChanges
from maxq.broker.tables.offset.slave_commits import SlaveCommit
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.json import json_dialect
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld


def reloaded(world: BrokerWorld) -> ConsumerOffsetManager:
    manager = create_consumer_offset_manager(world.disk, CONFIG_DIR, settings=world.settings, clock=world.clock)
    manager.load()
    return manager


def reloaded_after_persisting(world: BrokerWorld) -> ConsumerOffsetManager:
    world.offsets.persist()
    return reloaded(world)


def test_first_commits_of_many_queues_are_all_kept() -> None:
    offsets = BrokerWorld().offsets
    for queue_id in range(200):
        offsets.commit_offset("c:1", "G", "T", queue_id, queue_id * 10)
    assert [offsets.query_offset("G", "T", queue_id) for queue_id in range(200)] == list(range(0, 2000, 10))


def test_what_was_never_committed_is_minus_one() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 5)
    assert offsets.query_offset("G", "T", 1) == -1
    assert offsets.query_offset("H", "T", 0) == -1
    assert offsets.query_offsets("H", "T") == {}


def test_smaller_and_negative_offsets_are_taken() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 5)
    offsets.commit_offset("c:1", "G", "T", 0, 2)
    assert offsets.query_offset("G", "T", 0) == 2
    offsets.commit_offset("c:1", "G", "T", 0, -1)
    assert offsets.query_offset("G", "T", 0) == -1


def test_the_version_moves_once_in_500_commits() -> None:
    offsets = BrokerWorld().offsets
    for number in range(1001):
        offsets.commit_offset("c:1", "G", "T", 0, number)
    assert offsets.data_version.counter == 2


def test_pull_offsets_stand_beside_the_committed_ones() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 5)
    assert offsets.query_pull_offset("G", "T", 0) == 5
    offsets.commit_pull_offset("c:1", "G", "T", 0, 9)
    assert offsets.query_pull_offset("G", "T", 0) == 9
    assert offsets.query_offset("G", "T", 0) == 5


def test_a_reset_is_handed_out_once_and_stays_committed() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 50)
    offsets.assign_reset_offsets("T", "G", {0: 7})
    assert offsets.has_offset_reset("T", "G", 0)
    assert not offsets.has_offset_reset("T", "G", 1)
    offsets.commit_offset("c:1", "G", "T", 0, 51)
    assert offsets.query_offset("G", "T", 0) == 7
    assert offsets.query_then_erase_reset_offset("T", "G", 0) == 7
    assert offsets.query_then_erase_reset_offset("T", "G", 0) is None
    assert offsets.query_offset("G", "T", 0) == 51


@pytest.mark.parametrize("group", ["G", "%LMQ%g"])
def test_what_a_slave_was_told_by_who_has_not_heard_of_a_reset_does_not_end_it(group: str) -> None:
    for is_heard in (False, True):
        offsets = lmq_world().offsets
        offsets.assign_reset_offsets("T", group, {0: 3})
        told = {"offsetTable": {"T@G": {"0": 8, "1": 5}}, "lmqOffsetTable": {"T@%LMQ%g": 8}}
        offsets.take_back_from_slave(told, offsets.changes, {} if is_heard else {"T@G": [0, 1], "T@%LMQ%g": [0]})
        offsets.took_back_from_slave(offsets.changes, {"T@G", "T@%LMQ%g"})
        assert offsets.has_offset_reset("T", group, 0) is not is_heard
        assert offsets.query_offset(group, "T", 0) == (8 if is_heard else 3)
        assert offsets.query_offset("G", "T", 1) == 5, "no reset waits there"


def test_who_knows_the_number_of_a_reset_ends_it_but_not_one_of_a_deletion() -> None:
    offsets = BrokerWorld().offsets
    offsets.assign_reset_offsets("T", "G", {0: 7})
    change = offsets.changes.of("T@G")
    for number in (0, change - 1, change + 1):
        offsets.end_known_reset("T", "G", 0, number)
    assert offsets.has_offset_reset("T", "G", 0)
    offsets.end_known_reset("T", "G", 0, change)
    assert not offsets.any_reset
    offsets.commit_pull_offset("c", "G", "T", 0, 9)
    offsets.take_deletion(["T"], 1000)
    offsets.end_known_reset("T", "G", 0, change)
    assert offsets.has_offset_reset("T", "G", 0), "who commits has read the topic that was deleted"


def test_topics_and_groups_find_each_other() -> None:
    offsets = BrokerWorld().offsets
    for group, topic in (("G", "T"), ("G", "%RETRY%G"), ("H", "T")):
        offsets.commit_offset("c:1", group, topic, 0, 1)
    assert offsets.which_topic_by_consumer("G") == {"T", "%RETRY%G"}
    assert offsets.which_group_by_topic("T") == {"G", "H"}


def test_removing_a_group_or_topic_takes_all_its_offsets_and_no_others() -> None:
    offsets = BrokerWorld().offsets
    for group, topic in (("G", "T"), ("G2", "T"), ("G", "T2")):
        offsets.commit_offset("c:1", group, topic, 0, 1)
        offsets.commit_pull_offset("c:1", group, topic, 0, 3)
        offsets.assign_reset_offsets(topic, group, {0: 2})
    offsets.remove_offset("G")
    assert set(offsets.offset_table) == {"T@G2"}
    assert not offsets.has_offset_reset("T", "G", 0)
    offsets.clean_offset_by_topic("T")
    assert offsets.offset_table == {}
    assert offsets.query_pull_offset("G2", "T", 0) == -1


async def test_the_smallest_offset_of_all_groups_leaves_out_filtered_groups_and_what_the_store_lost() -> None:
    offsets = BrokerWorld().offsets
    for group, offset in (("A", 30), ("B", 20), ("C", 10), ("D", 1)):
        offsets.commit_offset("c:1", group, "T", 0, offset)
    assert await offsets.query_min_offset_in_all_group("T", ["C"], lambda topic, queue_id: 5) == {0: 20}
    assert offsets.query_offset("C", "T", 0) == 10, "asking with a filter must not remove the filtered groups"


def test_a_clone_takes_the_place_of_a_reset_that_waits() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 3)
    offsets.assign_reset_offsets("T", "H", {0: 1, 1: 2})
    offsets.clone_offset("G", "H", "T")
    assert offsets.query_offset("H", "T", 0) == 3
    assert offsets.query_then_erase_reset_offset("T", "H", 0) == 3
    assert not offsets.any_reset


def test_a_clone_goes_its_own_way() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_offset("c:1", "G", "T", 0, 5)
    offsets.clone_offset("G", "H", "T")
    offsets.clone_offset("Unknown", "I", "T")
    offsets.commit_offset("c:1", "H", "T", 0, 6)
    assert offsets.query_offset("G", "T", 0) == 5
    assert offsets.which_group_by_topic("T") == {"G", "H"}


def test_a_masters_offsets_win_also_the_smaller_ones_and_what_only_the_slave_has_stays() -> None:
    world = BrokerWorld()
    for group, queue_id, offset in (("G", 0, 9), ("G", 1, 9), ("MINE", 0, 3)):
        world.offsets.commit_offset("c:1", group, "T", queue_id, offset)
    masters = {
        "offsetTable": {"T@G": {"0": 5, "1": 12}, "T@NEW": {"0": 1}},
        "dataVersion": {"counter": 4, "stateVersion": 0, "timestamp": 1},
    }
    world.offsets.take_from_master(masters)
    world.offsets.took_from_master(masters)
    for offsets in (world.offsets, reloaded_after_persisting(world)):
        assert offsets.query_offsets("G", "T") == {0: 5, 1: 12}
        assert offsets.query_offsets("MINE", "T") == {0: 3}
        assert offsets.query_offsets("NEW", "T") == {0: 1}
        assert offsets.data_version.counter == 4


STEP = st.tuples(st.sampled_from("ccctgp"), st.integers(0, 9))


@given(steps=st.lists(STEP, max_size=40), size=st.sampled_from([1, 60, 200]), is_lmq=st.booleans())
def test_every_row_that_is_there_all_the_time_is_on_a_page(
    steps: list[tuple[str, int]], size: int, is_lmq: bool
) -> None:
    """Whatever is committed and deleted between two pages: a slave that passed over a row would not have it, or tell
    its master of an older offset."""
    offsets = BrokerWorld({"enableLmq": "true"} if is_lmq else {}).offsets
    groups = ["G", "H", "%LMQ%g"] if is_lmq else ["G", "H"]
    for number in range(10):
        for group in groups:
            offsets.commit_offset("c:1", group, f"T{number}", number, number)
    stayed = {f"T{number}@{group}" for number in range(10) for group in groups}
    seen: set[str] = set()
    mark, is_last = "", False
    for step, number in [*steps, *[("p", 0)] * 40]:
        if step == "c":
            offsets.commit_offset("c:1", groups[number % len(groups)], f"T{number}", 0, number + 1)
        elif step == "t":
            offsets.clean_offset_by_topic(f"T{number}")
            stayed -= {f"T{number}@{group}" for group in groups}
        elif step == "g":
            group = groups[number % len(groups)]
            offsets.remove_offset(group)
            stayed -= {f"T{topic}@{group}" for topic in range(10)}
        elif not is_last:
            rows, mark = offsets.page(mark, size)
            is_last = not mark
            seen |= {json.loads(row.partition(b":")[0]) for some in rows.values() for row in some}
    assert is_last
    assert stayed <= seen


READERS = ("reader", "another")


class Moving(dict[int, int]):
    """Offsets during whose copy other groups move on."""

    def __init__(self, world: BrokerWorld) -> None:
        super().__init__({0: 1})
        self._world = world

    def __iter__(self) -> Iterator[int]:  # else a copy asks for no keys
        return super().__iter__()

    def keys(self) -> Any:
        _move_on(self._world, 2)
        return super().keys()


def _move_on(world: BrokerWorld, offset: int) -> None:
    for topic, group in (("T", "G"), *(("journal", reader) for reader in READERS)):
        world.offsets.commit_offset("c:1", group, topic, 0, offset)


def test_what_says_how_much_of_a_journal_is_read_is_not_newer_in_the_file_than_groups_offsets() -> None:
    """They move while the file is put together."""
    world = BrokerWorld()
    keys = world.offsets.oldest_keys = tuple(f"journal@{reader}" for reader in READERS)
    _move_on(world, 1)
    table = world.offsets.offset_table
    table["T@Other"] = Moving(world)
    table.update({key: table.pop(key) for key in keys})  # behind it
    rows = json_dialect.loads(world.offsets.encode())["offsetTable"]
    assert [rows[key] for key in (*keys, "T@G")] == [{"0": 1}] * 3
    assert table["T@G"] == {0: 2}


def test_a_page_of_another_table_is_the_first_one() -> None:
    """Another process answers than answered before, or the table was read from a file meanwhile."""
    world, other = BrokerWorld(), BrokerWorld()
    for number in range(20):
        for offsets in (world.offsets, other.offsets):
            offsets.commit_offset("c:1", "G", f"T{number}", 0, number)
    _, mark = world.offsets.page("", 100)
    whole = world.offsets.page("", 1 << 20)
    assert other.offsets.page(mark, 1 << 20) == whole != world.offsets.page(mark, 1 << 20)
    for wrong in ("1", "a.b.c", "1.2.3.4", mark.replace(".", ".-", 1), mark + "x"):
        assert world.offsets.page(wrong, 1 << 20) == whole
    world.offsets.from_json(world.offsets.to_json())
    assert world.offsets.page(mark, 1 << 20) == whole


@pytest.mark.parametrize("enable_lmq", ["true", "false"])
def test_the_table_survives_a_restart_with_the_resets_that_no_pull_has_taken(enable_lmq: str) -> None:
    world = BrokerWorld({"enableLmq": enable_lmq})
    world.offsets.commit_offset("c:1", "G", "T", 3, 5)
    world.offsets.assign_reset_offsets("T", "G", {4: 7})
    world.offsets.assign_reset_offsets("T", "G", {5: 8})
    world.offsets.assign_reset_offsets("T", "%LMQ%g", {0: 9})
    assert world.offsets.query_then_erase_reset_offset("T", "G", 5) == 8
    world.offsets.persist()
    again = reloaded(world)
    assert again.offset_table["T@G"] == {3: 5, 4: 7, 5: 8}
    assert [again.has_offset_reset("T", "G", queue_id) for queue_id in (3, 4, 5)] == [False, True, False]
    assert again.has_offset_reset("T", "%LMQ%g", 0)
    assert again.query_then_erase_reset_offset("T", "G", 4) == 7
    again.persist()
    assert not reloaded(world).has_offset_reset("T", "G", 4)


def _take(offsets: ConsumerOffsetManager, *, can_be_told: bool = True) -> "asyncio.Task[int | None]":
    return asyncio.create_task(offsets.take_reset("T", "G", 0, can_be_told=lambda: can_be_told))


@pytest.mark.parametrize("disk_fails", [False, True])
async def test_the_first_pull_is_told_of_a_reset_when_a_start_would_not_find_it_any_more(disk_fails: bool) -> None:
    """Or all the same, if the disk does not take that. Until then nothing that the group commits counts."""
    world = BrokerWorld()
    offsets = world.offsets
    offsets.assign_reset_offsets("T", "G", {0: 7})
    offsets.persist()
    if disk_fails:
        world.disk.fail_flush("*consumerOffset.json*")
    first, second = _take(offsets), _take(offsets)
    while not first.done():
        assert offsets.has_offset_reset("T", "G", 0)
        await asyncio.sleep(0)
    assert reloaded(world).has_offset_reset("T", "G", 0) is disk_fails
    assert [await first, await second] == [7, None]
    assert not offsets.any_reset


async def test_a_reset_of_which_nobody_could_be_told_waits_on_in_the_file_too() -> None:
    world = BrokerWorld()
    world.offsets.assign_reset_offsets("T", "G", {0: 7})
    gone, other = _take(world.offsets, can_be_told=False), _take(world.offsets, can_be_told=False)
    assert [await gone, await other] == [None, None]
    await world.offsets.persisted()
    assert reloaded(world).has_offset_reset("T", "G", 0)
    assert await _take(world.offsets) == 7


async def test_a_pull_is_told_of_the_newest_reset() -> None:
    world = BrokerWorld()
    world.offsets.assign_reset_offsets("T", "G", {0: 7})
    pulls = [_take(world.offsets) for _ in range(2)]
    await asyncio.sleep(0)
    world.offsets.assign_reset_offsets("T", "G", {0: 3})
    assert sorted(await asyncio.gather(*pulls), key=str) == [3, None]
    assert not reloaded(world).any_reset


async def test_a_broker_that_ends_before_a_pull_was_told_of_a_reset_keeps_it() -> None:
    world = BrokerWorld()
    world.offsets.assign_reset_offsets("T", "G", {0: 7})
    pull = _take(world.offsets)
    await asyncio.sleep(0)
    pull.cancel()
    await asyncio.wait([pull])
    await world.offsets.persisted()
    assert reloaded(world).has_offset_reset("T", "G", 0)


def test_resets_in_the_file_have_names_that_every_reader_of_json_takes_and_are_numbers() -> None:
    world = BrokerWorld()
    world.offsets.assign_reset_offsets("T", "G", {4: 7})
    value = json_dialect.loads(world.offsets.encode())
    assert value["resets"] == {"4@T@G": 7}
    for wrong in ({"T@G": 7}, {"4@T@G": None}, {"4@T@G": {}}, [7]):
        with pytest.raises(RemoteProtocolError, match="resets"):
            world.offsets.from_json({**value, "resets": wrong})


@pytest.mark.parametrize("is_back", [True, False])
@pytest.mark.parametrize("enable_lmq", ["true", "false"])
def test_a_reset_ends_when_the_group_has_gone_on_at_another_broker(is_back: bool, enable_lmq: str) -> None:
    """There the consumer began at the reset offset, which is in the table that the other broker has."""
    world, other = BrokerWorld({"enableLmq": enable_lmq}), BrokerWorld({"enableLmq": enable_lmq}).offsets
    offsets = world.offsets
    for group, topic in (("G", "T"), ("G", "Waits"), ("%LMQ%g", "T")):
        offsets.assign_reset_offsets(topic, group, {0: 1})
    other.from_json(offsets.to_json() | {"resets": None})
    other.commit_offset("c:1", "G", "T", 0, 50)
    other.commit_offset("c:1", "%LMQ%g", "T", 0, 50)
    told = other.to_json()
    if is_back:
        offsets.take_back_from_slave(told, other.changes)
        offsets.took_back_from_slave(other.changes, told["offsetTable"].keys())
    else:
        offsets.begin_copy()
        offsets.take_from_master(told)
        offsets.took_from_master(told)
    assert [offsets.query_offset(group, "T", 0) for group in ("G", "%LMQ%g")] == [50, 50]
    assert not offsets.has_offset_reset("T", "G", 0) and not offsets.has_offset_reset("T", "%LMQ%g", 0)
    assert offsets.query_then_erase_reset_offset("Waits", "G", 0) == 1


@pytest.mark.parametrize("setting", [{"brokerRole": "SLAVE"}, {"useServerSideResetOffset": "false"}])
def test_resets_that_no_pull_takes_from_this_broker_are_not_kept(setting: dict[str, str]) -> None:
    world = BrokerWorld()
    world.offsets.assign_reset_offsets("T", "G", {4: 7})
    world.offsets.persist()
    other = BrokerWorld(setting, disk=world.disk).offsets
    other.load()
    assert not other.any_reset and other.offset_table == {"T@G": {4: 7}}


def test_where_readers_of_a_deleted_topic_begin_is_not_kept_for_who_comes_later() -> None:
    world = BrokerWorld()
    world.offsets.commit_pull_offset("c:1", "G", "T", 0, 5)
    world.offsets.take_deletion(["T"], 100)
    assert world.offsets.has_offset_reset("T", "G", 0)
    world.offsets.persist()
    assert not reloaded(world).any_reset


def test_the_file_is_only_written_when_something_changed() -> None:
    world = BrokerWorld()
    path = CONFIG_DIR / "consumerOffset.json"
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    world.offsets.persist()
    world.disk.delete(path)
    world.offsets.persist()
    assert not world.disk.exists(path)
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    world.offsets.persist()
    assert world.disk.exists(path)


def test_the_file_looks_as_java_writes_it() -> None:
    world = BrokerWorld()
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    text = world.offsets.encode().decode()
    assert '\n\t"groupTopicMap":{\n\t\t"G":["T"]\n\t},' in text
    assert text.endswith('\n\t"offsetTable":{\n\t\t"T@G":{0:5}\n\t}\n}')
    assert world.offsets.encode_compact().endswith(b'"offsetTable":{"T@G":{"0":5}}}')


def test_names_in_the_file_are_json_whatever_they_hold() -> None:
    world = lmq_world()
    name = 'a"b\\c\nd\x01ü'
    world.offsets.commit_offset("c:1", "G", name, 0, 5)
    world.offsets.commit_offset("c:1", "G", name, 7, 1 << 62)
    world.offsets.commit_offset("c:1", "G", "T", 0, 8)
    world.offsets.commit_offset("c:1", "%LMQ%g", name, 0, 9)
    value = json_dialect.loads(world.offsets.encode())
    assert value["groupTopicMap"] == {"G": [name, "T"]}
    assert value["lmqOffsetTable"] == {f"{name}@%LMQ%g": 9}
    assert reloaded_after_persisting(world).offset_table == {f"{name}@G": {0: 5, 7: 1 << 62}, "T@G": {0: 8}}


def test_the_file_of_a_broker_without_groups() -> None:
    text = BrokerWorld().offsets.encode().decode()
    assert text.endswith(',\n\t"groupTopicMap":{},\n\t"offsetTable":{}\n}')


def test_java_s_file_is_read() -> None:
    world = BrokerWorld()
    world.take_golden_config("clean", "consumerOffset.json")
    offsets = reloaded(world)
    assert offsets.query_offsets("Gd_G_Simple", "Gd_Simple") == {0: 225, 1: 225, 2: 225, 3: 225}
    assert offsets.query_offsets("Gd_G_Part", "Gd_Keys") == {0: 10, 1: 10}
    assert offsets.data_version.timestamp == 1795229796208


def lmq_world() -> BrokerWorld:
    return BrokerWorld({"enableLmq": "true"})


def test_groups_of_light_message_queues_have_a_flat_table() -> None:
    world = lmq_world()
    offsets = world.offsets
    assert isinstance(offsets, LmqConsumerOffsetManager)
    offsets.commit_offset("c:1", "%LMQ%g", "%LMQ%q", 0, 8)
    offsets.commit_offset("c:1", "G", "T", 1, 5)
    assert offsets.lmq_offset_table == {"%LMQ%q@%LMQ%g": 8}
    assert offsets.query_offset("%LMQ%g", "%LMQ%q", 0) == 8
    assert offsets.query_offsets("%LMQ%g", "%LMQ%q") == {0: 8}
    offsets.assign_reset_offsets("%LMQ%q", "%LMQ%g", {0: 3})
    assert offsets.query_then_erase_reset_offset("%LMQ%q", "%LMQ%g", 0) == 3
    assert offsets.query_offset("%LMQ%g", "%LMQ%q", 0) == 3
    offsets.persist()
    again = reloaded(world)
    assert again.query_offset("%LMQ%g", "%LMQ%q", 0) == 3
    assert again.query_offset("G", "T", 1) == 5
    again.remove_offset("%LMQ%g")
    assert again.query_offset("%LMQ%g", "%LMQ%q", 0) == -1


def test_java_s_lmq_file_is_read() -> None:
    world = lmq_world()
    world.take_golden_config("lmq-cqext", "lmqConsumerOffset.json")
    assert reloaded(world).query_offsets("Gd_G_Sql", "Gd_Sql") == {0: 90}


def test_switching_light_message_queues_on_and_off_keeps_the_offsets() -> None:
    world = BrokerWorld()
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    world.offsets.persist()
    on = BrokerWorld({"enableLmq": "true"}, disk=world.disk)
    on.offsets.load()
    assert on.offsets.query_offset("G", "T", 0) == 5
    on.offsets.persist()
    assert world.disk.exists(CONFIG_DIR / "lmqConsumerOffset.json")


def test_no_group_stands_behind_the_end_of_a_queue_that_a_start_has_found() -> None:
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    for world, group in (BrokerWorld(), "G"), (BrokerWorld(light), "%LMQ%G"):
        offsets = world.offsets
        offsets.commit_offset("c:1", group, "T", 0, 10)
        offsets.commit_offset("c:1", "H", "T", 0, 7)
        offsets.commit_offset("c:1", "CID_RMQ_SYS_TRANS", "HALF", 0, 10)
        offsets.not_beyond(lambda topic, queue_id: 7)
        assert [offsets.query_offset(name, "T", 0) for name in (group, "H")] == [7, 7]
        assert offsets.query_then_erase_reset_offset("T", group, 0) == 7
        assert offsets.query_then_erase_reset_offset("T", "H", 0) is None
        assert offsets.query_offset("CID_RMQ_SYS_TRANS", "HALF", 0) == 7
        assert not offsets.any_reset


def moved(world: BrokerWorld) -> list[tuple[str, tuple[int, ...]]]:
    """What listeners of offsets that were set are told from now on."""
    told: list[tuple[str, tuple[int, ...]]] = []
    world.offsets.when_set.append(lambda key, queue_ids: told.append((key, tuple(queue_ids))))
    return told


def test_who_listens_is_told_of_offsets_that_were_set_and_of_no_commits() -> None:
    world = BrokerWorld()
    told = moved(world)
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    world.offsets.commit_offset("c:1", "G", "T", 3, 6)
    world.offsets.assign_reset_offsets("T", "G", {3: 7})
    world.offsets.clone_offset("G", "H", "T")
    world.offsets.clone_offset("unknown", "I", "T")
    assert told == [("T@G", (3,)), ("T@H", (0, 3))]


def test_pending_resets_are_of_their_queue_alone() -> None:
    offsets = BrokerWorld().offsets
    assert not offsets.any_reset
    assert offsets.query_then_erase_reset_offset("T", "G", 0) is None
    offsets.assign_reset_offsets("T", "G", {0: 7})
    offsets.assign_reset_offsets("T", "G", {1: 8})
    offsets.commit_offset("c:1", "G", "T", 2, 9)
    assert offsets.any_reset
    assert [offsets.query_offset("G", "T", queue_id) for queue_id in range(4)] == [7, 8, 9, -1]
    assert offsets.query_then_erase_reset_offset("T", "other", 0) is None
    assert offsets.query_then_erase_reset_offset("T", "G", 5) is None
    assert offsets.query_then_erase_reset_offset("T", "G", 0) == 7
    assert [offsets.has_offset_reset("T", "G", queue_id) for queue_id in range(2)] == [False, True]
    assert offsets.query_then_erase_reset_offset("T", "G", 1) == 8
    assert not offsets.any_reset


def test_a_reset_does_not_hide_commits_where_resets_are_off() -> None:
    offsets = BrokerWorld({"useServerSideResetOffset": "false"}).offsets
    offsets.assign_reset_offsets("T", "G", {0: 7})
    offsets.commit_offset("c:1", "G", "T", 0, 9)
    assert offsets.query_offset("G", "T", 0) == 9


def test_what_was_pulled_is_known_by_queue() -> None:
    offsets = BrokerWorld().offsets
    offsets.commit_pull_offset("c:1", "G", "T", 0, 4)
    offsets.commit_pull_offset("c:1", "G", "T", 1, 5)
    offsets.commit_offset("c:1", "G", "T", 2, 6)
    assert [offsets.query_pull_offset("G", "T", queue_id) for queue_id in range(4)] == [4, 5, 6, -1]
    assert offsets.query_offset("G", "T", 0) == -1


DELETED = {"deletions": {"upTo": 500}}


def test_offsets_of_deleted_topics_are_forgotten_once() -> None:
    world = BrokerWorld()
    offsets = world.offsets
    for topic in ("gone", "T"):
        offsets.commit_offset("c:1", "G", topic, 0, 5)
    offsets.take_deletion(["gone", "unknown"], 500)
    assert set(offsets.offset_table) == {"T@G"}
    assert offsets.to_json()["deletions"] == {"upTo": 500}
    offsets.commit_offset("c:1", "G", "gone", 0, 1)
    for again in (499, 500):
        offsets.take_deletion(["gone"], again)
        assert offsets.query_offset("G", "gone", 0) == 1, "that is the new topic's"
    assert reloaded_after_persisting(world).deleted_up_to == 500
    offsets.take_deletion(["gone"], 501)
    assert offsets.query_offset("G", "gone", 0) == -1
    assert offsets.deleted_up_to == 501


def test_a_start_forgets_offsets_of_topics_deleted_since_the_file_was_written() -> None:
    offsets = BrokerWorld().offsets
    offsets.from_json({"offsetTable": {"gone@G": {"0": 5}, "T@G": {"0": 6}}} | DELETED)
    asked: list[int] = []

    def deletions_since(physical_offset: int) -> list[str]:
        asked.append(physical_offset)
        return ["gone"]

    offsets.follow_deletions(deletions_since, 900, lambda topic, queue_id: 100)
    assert asked == [500]
    assert offsets.offset_table == {"T@G": {0: 6}}
    assert offsets.deleted_up_to == 900


def test_where_the_file_does_not_say_only_offsets_that_cannot_be_are_forgotten() -> None:
    world = BrokerWorld()
    offsets = world.offsets
    offsets.from_json({"offsetTable": {"gone@G": {"0": 5, "1": 9, "2": 10}, "T@G": {"0": 60}}})
    asked: list[int] = []

    def deletions_since(physical_offset: int) -> list[str]:
        asked.append(physical_offset)
        return ["gone"]

    offsets.follow_deletions(deletions_since, 900, lambda topic, queue_id: 9)
    assert asked == [0]
    assert offsets.offset_table == {"gone@G": {0: 5, 1: 9}, "T@G": {0: 60}}
    assert reloaded_after_persisting(world).deleted_up_to == 900


def test_another_brokers_offsets_of_topics_deleted_since_do_not_count() -> None:
    page = {"offsetTable": {"gone@G": {"0": 5}, "T@G": {"0": 6}}}
    for marked, expected in ((page | DELETED, {"T@G": {0: 6}}), (page, {"gone@G": {0: 5}, "T@G": {0: 6}})):
        offsets = BrokerWorld().offsets
        asked: list[int] = []
        offsets.deletions_since = lambda up_to, asked=asked: asked.append(up_to) or ["gone"]
        offsets.take_from_master(marked)
        assert offsets.offset_table == expected
        assert asked == ([500] if marked is not page else [])


def test_a_master_takes_the_larger_offset_of_what_a_slave_kept() -> None:
    world = BrokerWorld()
    offsets = world.offsets
    for queue_id, offset in ((0, 5), (1, 5), (2, 5)):
        offsets.commit_offset("c:1", "G", "T", queue_id, offset)
    offsets.persist()
    version = {"counter": 9, "stateVersion": 2, "timestamp": 3}
    kept = {"offsetTable": {"T@G": {"0": 4, "1": 5, "2": 6, "3": 0}, "T@H": {"0": 1}}, "dataVersion": version}
    assert offsets.take_back_from_slave(kept, OperatorChanges()) == 3
    assert offsets.query_offsets("G", "T") == {0: 5, 1: 5, 2: 6, 3: 0}
    assert offsets.which_group_by_topic("T") == {"G", "H"}
    assert offsets.data_version.counter == 9
    assert offsets.take_back_from_slave({"offsetTable": {}}, None) == 0
    assert offsets.data_version.counter == 9
    again = reloaded_after_persisting(world)
    assert (again.query_offsets("H", "T"), again.data_version.counter) == ({0: 1}, 9)


@pytest.mark.parametrize("more", [{}, {"enableLmq": "true"}])
@pytest.mark.parametrize("group", ["G", "%LMQ%G"])
def test_what_a_slave_kept_that_has_not_heard_of_an_operators_change_does_not_undo_it(
    more: dict[str, str], group: str
) -> None:
    world = BrokerWorld(more)
    offsets = world.offsets
    for topic in ("Set", "Removed", "Other"):
        offsets.commit_offset("c:1", f"{group}{topic}", topic, 0, 7)
    kept = json.loads(json_dialect.dumps(offsets.to_json()))
    known = OperatorChanges()
    offsets.assign_reset_offsets("Set", f"{group}Set", {0: 3})
    offsets.remove_offset(f"{group}Removed")
    offsets.commit_offset("c:1", f"{group}Other", "Other", 0, 2)
    for master in (offsets, reloaded_after_persisting(world)):
        assert master.take_back_from_slave(kept, known) == 1
        assert [master.query_offsets(f"{group}{topic}", topic) for topic in ("Set", "Removed", "Other")] == [
            {0: 3}, {}, {0: 7}
        ]  # fmt: skip
        master.commit_offset("c:1", f"{group}Other", "Other", 0, 2)
    assert offsets.take_back_from_slave(kept, OperatorChanges.from_json(offsets.to_json())) == 3
    assert offsets.take_back_from_slave({}, None) == 0


@pytest.mark.parametrize("more", [{}, {"enableLmq": "true"}])
@pytest.mark.parametrize("group", ["G", "%LMQ%G"])
def test_of_an_operators_change_that_only_the_other_slave_knows_its_offsets_count(
    more: dict[str, str], group: str
) -> None:
    """One slave takes over from another, whose copy of their master's table was newer."""
    own, others = (BrokerWorld({"brokerRole": "SLAVE", **more}).offsets for _ in range(2))
    for one in (own, others):
        for name in ("Set", "Removed", "Again"):
            one.commit_offset("c:1", f"{group}{name}", "T", 0, 7)
    others.assign_reset_offsets("T", f"{group}Set", {0: 3})
    others.remove_offset(f"{group}Removed")
    others.remove_offset(f"{group}Again")
    others.commit_offset("c:1", f"{group}Again", "T", 0, 2)
    page = json.loads(json_dialect.dumps(others.to_json()))
    known = OperatorChanges.from_json(page)
    for _ in range(2):
        own.take_back_from_slave(page, known)
        own.took_back_from_slave(known, keys_on(page))
        assert [own.query_offset(f"{group}{name}", "T", 0) for name in ("Set", "Removed", "Again")] == [3, -1, 2]


@pytest.mark.parametrize("more", [{}, {"enableLmq": "true"}])
def test_that_a_slave_has_acted_is_told_and_kept_until_it_has_copied_its_master(more: dict[str, str]) -> None:
    world = BrokerWorld({"brokerRole": "SLAVE", **more})
    world.offsets.begin_to_act(DataVersion(10_000, 0, 1))
    for slave in (world.offsets, reloaded_after_persisting(world)):
        assert tells_of_acting(slave.head()) and tells_of_acting(slave.to_json())
    world.offsets.took_from_master({})
    for slave in (world.offsets, reloaded_after_persisting(world)):
        assert not tells_of_acting(slave.head())


@pytest.mark.parametrize("more", [{}, {"enableLmq": "true"}])
@pytest.mark.parametrize("group", ["G", "%LMQ%G"])
def test_a_slave_forgets_what_an_operator_has_removed_at_its_master_and_keeps_what_came_since(
    more: dict[str, str], group: str
) -> None:
    master = BrokerWorld(more).offsets
    slave = BrokerWorld({"brokerRole": "SLAVE", **more}).offsets
    for one in (master, slave):
        for topic in ("T", "U"):
            one.commit_offset("c:1", group, topic, 0, 7)
    slave.commit_offset("c:1", "Own", "T", 0, 7)
    slave.slave_commits.note(group, "T", 0, 9)
    slave.slave_commits.note("Own", "T", 0, 9)
    master.remove_offset(group)
    master.commit_offset("c:1", group, "U", 0, 1)
    page = json.loads(json_dialect.dumps(master.to_json()))
    assert slave.has_news_of_operators(page)
    slave.take_from_master(page)
    slave.took_from_master(page, [f"U@{group}"])
    assert [slave.query_offset(group, topic, 0) for topic in ("T", "U")] == [-1, 1]
    assert slave.query_offset("Own", "T", 0) == 7
    assert slave.slave_commits.keys() == {"T@Own"}
    assert not slave.has_news_of_operators(page)


def test_of_changes_by_operators_the_last_thousand_are_kept() -> None:
    offsets = BrokerWorld().offsets
    for number in range(MOST + 1):
        offsets.remove_offset(f"G{number}")
    assert len(offsets.to_json()["operatorChanges"]) == MOST
    assert offsets.changes.of("T@G0") == 0 < offsets.changes.of("T@G1") < offsets.changes.of("T@G2")


@pytest.mark.parametrize("wrong", [5, [1], {"T@G": "x"}, {"T@G": None}])
def test_changes_that_are_no_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(RemoteProtocolError, match="operatorChanges"):
        BrokerWorld().offsets.forget_commits_before_changes({"operatorChanges": wrong})


def test_what_operators_set_in_the_log_is_taken_once() -> None:
    world = BrokerWorld()
    offsets = world.offsets
    assert "operators" not in offsets.to_json()
    assert offsets.take_set({"T@G": {0: 5, 1: 6}}, 0)
    assert not offsets.take_set({"T@G": {0: 9}}, 0)
    offsets.commit_offset("c:1", "G", "T", 0, 7)
    assert offsets.take_set({"T@G": {1: 8}}, 100)
    assert not offsets.take_set({"T@G": {1: 9}}, 99)
    assert offsets.query_offsets("G", "T") == {0: 7, 1: 8}
    assert offsets.which_group_by_topic("T") == {"G"}
    again = reloaded_after_persisting(world)
    assert (again.set_up_to, again.query_offsets("G", "T")) == (100, {0: 7, 1: 8})
    again.has_set(99)
    assert again.set_up_to == 100
    again.took_from_master({"operators": {"upTo": 150}, "dataVersion": None})
    assert again.set_up_to == 150
    assert again.head()["operators"] == {"upTo": 150}


def test_marks_that_are_none_count_as_missing() -> None:
    offsets = BrokerWorld().offsets
    for wrong in (5, {"upTo": "5"}, {}, None):
        offsets.from_json({"offsetTable": {}, "deletions": wrong, "operators": wrong})
        assert (offsets.deleted_up_to, offsets.set_up_to) == (0, -1)
        assert offsets.head().keys() == {"dataVersion", "groupTopicMap", "offsetTable"}


def test_what_clients_committed_here_outlives_the_masters_smaller_offsets() -> None:
    world = BrokerWorld({"brokerRole": "SLAVE"})
    offsets = world.offsets
    offsets.slave_commits.note("G", "T", 0, 8)
    offsets.slave_commits.note("G", "T", 1, 3)
    masters = {"offsetTable": {"T@G": {"0": 5, "1": 5, "2": 5}, "T@H": {"0": 1}}}
    assert offsets.of_slave_commits(masters) == {"T@G": {0: 5, 1: 5, 2: 5}}
    offsets.take_from_master(masters)
    assert offsets.query_offsets("G", "T") == {0: 8, 1: 5, 2: 5}
    ahead = offsets.ahead_of_master({"T@G": {0: 5, 1: 5, 2: 5}})
    assert ahead == [SlaveCommit("T", "G", 0, 8)]


def test_the_version_a_group_goes_on_with_is_kept() -> None:
    world = BrokerWorld()
    other = BrokerWorld().offsets
    for number in range(500):
        other.commit_offset("c:1", "G", "T", 0, number)
    world.offsets.persist()
    world.offsets.take_version(other.data_version)
    assert reloaded_after_persisting(world).data_version.counter == 1


def test_a_page_is_of_the_size_asked_for_or_one_row_more() -> None:
    offsets = BrokerWorld().offsets
    for number in range(5):
        offsets.commit_offset("c:1", "G", f"T{number}", 0, number)
    row = len(b'"T0@G":{"0":0}')
    rows, mark = offsets.page("", 2 * row)
    assert rows == {"offsetTable": [b'"T0@G":{"0":0}', b'"T1@G":{"0":1}']}
    rows, mark = offsets.page(mark, row + 1)
    assert rows == {"offsetTable": [b'"T2@G":{"0":2}', b'"T3@G":{"0":3}']}
    assert offsets.page(mark, 1) == ({"offsetTable": [b'"T4@G":{"0":4}']}, "")
    assert BrokerWorld().offsets.page("", 100) == ({}, "")
