"""Offsets of groups: commits, resets, what tools ask, and the two files."""

import json

from hypothesis import given
from hypothesis import strategies as st

from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager, create_consumer_offset_manager
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
    offsets.assign_reset_offset("T", "G", 0, 7)
    assert offsets.has_offset_reset("T", "G", 0)
    assert not offsets.has_offset_reset("T", "G", 1)
    offsets.commit_offset("c:1", "G", "T", 0, 51)
    assert offsets.query_offset("G", "T", 0) == 7
    assert offsets.query_then_erase_reset_offset("T", "G", 0) == 7
    assert offsets.query_then_erase_reset_offset("T", "G", 0) is None
    assert offsets.query_offset("G", "T", 0) == 51


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
        offsets.assign_reset_offset(topic, group, 0, 2)
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


def test_the_table_survives_a_restart_and_resets_do_not() -> None:
    world = BrokerWorld()
    world.offsets.commit_offset("c:1", "G", "T", 3, 5)
    world.offsets.assign_reset_offset("T", "G", 4, 7)
    world.offsets.persist()
    again = reloaded(world)
    assert again.offset_table == {"T@G": {3: 5, 4: 7}}
    assert not again.has_offset_reset("T", "G", 4)


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
    offsets.assign_reset_offset("%LMQ%q", "%LMQ%g", 0, 3)
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
