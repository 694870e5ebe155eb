"""Topics made, changed, deleted and shown by administrators."""

from collections.abc import Callable
from typing import Any

import pytest

from maxq.codes import ResponseCode
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, encode_record
from tests.unit.broker.broker_world import BrokerWorld, parsed

CREATE = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "2", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "", "force": "false",
}  # fmt: skip


async def test_a_topic_is_made_registered_and_on_disk_before_the_answer() -> None:
    world = BrokerWorld()
    changed: list[str] = []
    world.topics.add_change_listener(lambda configs, deleted: changed.extend(c.topic_name for c in configs))
    answer = await world.call(17, CREATE)
    assert (answer.code, answer.remark) == (0, None)
    assert changed == ["T"]
    again = BrokerWorld(disk=world.disk)
    again.topics.load()
    assert again.topics.topic_config_table["T"].read_queue_nums == 4


@pytest.mark.parametrize(
    ("total", "global_id", "remark"),
    [
        (
            (1 << 31) - 1,
            0,
            "totalQueues in the mapping of topic T is 2147483647, allowed is 0 to 1024",
        ),
        (-1, 0, "totalQueues in the mapping of topic T is -1, allowed is 0 to 1024"),
        (1, 65_535, "the mapping of topic T has queue 65535, allowed is 0 to 65534"),
        (1, -1, "the mapping of topic T has queue -1"),
    ],
)
async def test_a_static_topic_with_an_impossible_number_of_queues_is_refused(
    total: int, global_id: int, remark: str
) -> None:
    """The broker stood still while it assigned them, and so did all clients of the topic."""
    world = BrokerWorld()
    chains = {global_id: [LogicQueueMappingItem(0, 0, "wire-broker")]}
    mapping = TopicQueueMappingDetail("T", "__global__", total, "wire-broker", 1, False, None, chains)
    answer = await world.call(513, CREATE, mapping.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER and remark in (answer.remark or "")
    assert not world.mappings.is_static("T")


async def test_the_same_topic_again_changes_nothing() -> None:
    world = BrokerWorld()
    await world.call(17, CREATE)
    version = world.topics.data_version
    assert (await world.call(17, CREATE)).code == 0
    assert world.topics.data_version == version


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "bad name!"}, 29, "allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 29, "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ({"topic": "WireCluster"}, 29, "is conflict with system topic"),
        ({"attributes": "+no.such=x"}, 1, "unsupported key: no.such"),
        ({"attributes": "+message.type=Unheard"}, 1, "value is not in set"),
        ({"attributes": "message.type=FIFO"}, 1, "format is wrong"),
        ({"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic"),
        ({"attributes": "+reserve.time=5"}, 1, "needs a tiered store"),
        ({"attributes": "+cleanup.policy=COMPACTION,+queue.type=BatchCQ"}, 29, "needs queue.type=SimpleCQ"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported"),
        (
            {"readQueueNums": "1025"},
            29,
            "readQueueNums of topic T is 1025, allowed is 0 to 1024 (maxQueuesOfTopic); use fewer, or raise",
        ),
        ({"writeQueueNums": "-1"}, 29, "allowed is 0 to 1024"),
        ({"perm": "99"}, 29, "perm of topic T is 99"),
        ({"topicFilterType": "OTHER"}, 29, "OTHER"),
        ({"perm": "x"}, 1, "the custom field <perm> is null"),
        ({"attributes": "+quota.bytes=1_000"}, 1, "quota.bytes=1_000: value is not a whole number in range(1, "),
        ({"attributes": "+retention.ms= 5000"}, 1, "value is not a whole number in range(1000, "),
        ({"attributes": "+quota.messages=\u0665"}, 1, "value is not a whole number"),
        (
            {"attributes": "+purged.offsets=0:1"},
            29,
            "is 1 for queue 0, which ends at 0: messages stored there next would",
        ),
        ({"attributes": "+purged.offsets=" + "9" * 5000 + ":1"}, 1, "queue offsets have the form queueId:offset"),
    ],
)
async def test_what_cannot_be_made_is_refused_with_the_reason(change: dict[str, str], code: int, remark: str) -> None:
    world = BrokerWorld()
    answer = await world.call(17, {**CREATE, **change})
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert not world.topics.contains_topic("T")


async def test_a_topic_with_more_queues_than_may_be_made_now_keeps_them() -> None:
    world = BrokerWorld({"maxQueuesOfTopic": "2000"})
    assert (await world.call(17, {**CREATE, "readQueueNums": "2000"})).code == 0
    world.settings.update({"maxQueuesOfTopic": "100"})
    assert (await world.call(17, {**CREATE, "readQueueNums": "2000", "perm": "4"})).code == 0
    assert (await world.call(17, {**CREATE, "readQueueNums": "2001"})).code == 29


@pytest.mark.parametrize("attribute", ["message.type=LITE", "message.type=PRIORITY", "lite.topic.expiration=30"])
async def test_attributes_of_5_5_are_taken_and_shown(attribute: str) -> None:
    world = BrokerWorld()
    assert (await world.call(17, {**CREATE, "attributes": "+" + attribute})).code == 0
    name, _, value = attribute.partition("=")
    assert parsed(await world.call(351, {"topic": "T"}))["attributes"] == {name: value}


async def test_fixed_attributes_stay_as_they_were_made() -> None:
    world = BrokerWorld()
    await world.call(17, {**CREATE, "attributes": "+queue.type=BatchCQ"})
    answer = await world.call(17, {**CREATE, "attributes": "+queue.type=SimpleCQ"})
    assert answer.code == 1
    assert "attempt to update an unchangeable attribute. key: queue.type" in (answer.remark or "")


async def test_a_list_of_topics_is_made_whole_or_not_at_all() -> None:
    world = BrokerWorld()
    topics = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in ("A", "B")]
    refused = await world.call(18, None, {"topicConfigList": [*topics, {"topicName": "bad name!"}]})
    assert refused.code == 29
    assert not world.topics.contains_topic("A")
    world.add_topic("A", 1)
    assert (await world.call(18, None, {"topicConfigList": topics})).code == 0
    assert world.topics.contains_topic("B"), "a known topic in the list must not hide the others"


async def test_a_deleted_topic_takes_its_offsets_queues_and_pop_retry_topics_with_it() -> None:
    world = BrokerWorld()
    for name in ("T", "%RETRY%G_T", "%RETRY%G"):
        world.topics.create_topic_in_send_message_back_method(name, 1, 6, 0)
    world.offsets.commit_offset("c:1", "G", "T", 0, 5)
    deleted: list[str] = []
    world.topics.add_change_listener(lambda configs, names: deleted.extend(names))
    assert (await world.call(215, {"topic": "T"})).code == 0
    assert deleted == ["T", "%RETRY%G_T"]
    assert world.topics.contains_topic("%RETRY%G")
    assert world.offsets.query_offset("G", "T", 0) == -1
    doomed = {"T", "%RETRY%G_T"}
    assert world.store.calls == [("put_deletion", doomed), ("when_durable", 100), ("finish_deletion", doomed)]
    again = BrokerWorld(disk=world.disk)
    again.topics.load()
    again.offsets.load()
    assert not again.topics.contains_topic("T")
    assert again.offsets.query_offset("G", "T", 0) == -1


async def test_pop_retry_topics_go_with_their_topic_also_where_a_kill_took_the_offsets_of_their_group() -> None:
    """What was in them came to the group when the topic was made again."""
    world = BrokerWorld()
    others = ("%RETRY%a_b_T", "%RETRY%unknown_T", "%RETRY%of_T", "%DLQ%G_T")
    for name in ("T", "b_T", "%RETRY%G_T", "%RETRY%G+T", *others):
        world.topics.create_topic_in_send_message_back_method(name, 1, 6, 0)
    for group in ("G", "a", "a_b", "of_T", "of"):
        world.groups.find_subscription_group_config(group)
    world.store.topics[b"%RETRY%a+T"] = None  # which only the log knows
    deleted: list[str] = []
    world.topics.add_change_listener(lambda configs, names: deleted.extend(names))
    assert (await world.call(215, {"topic": "T"})).code == 0
    assert deleted == ["T", "%RETRY%G+T", "%RETRY%G_T"]
    assert world.store.calls[0] == ("put_deletion", {*deleted, "%RETRY%a+T"})
    assert all(world.topics.contains_topic(name) for name in others)


@pytest.mark.parametrize("other_lives", [True, False])
async def test_a_retry_topic_of_a_deleted_group_stays_while_it_may_be_that_of_another(other_lives: bool) -> None:
    """The group a lost what it had popped from b_T when T went, if a group a_b had popped T last and was deleted."""
    world = BrokerWorld()
    for name in ("T", "b_T", "%RETRY%a_b_T"):
        world.topics.create_topic_in_send_message_back_method(name, 1, 6, 0)
    if other_lives:
        world.groups.find_subscription_group_config("a")
    properties = {const.PROPERTY_FIRST_POP_TIME: "1", const.PROPERTY_ORIGIN_GROUP: "a_b"}
    world.store.fill("%RETRY%a_b_T", 0, [1])
    world.store.messages[0] = encode_record(MessageExt("%RETRY%a_b_T", b"x", properties=properties))
    assert (await world.call(215, {"topic": "T"})).code == 0
    assert world.topics.contains_topic("%RETRY%a_b_T") is other_lives


async def test_a_topic_is_deleted_also_where_the_timer_is_off() -> None:
    world = BrokerWorld({"timerWheelEnable": "false"})
    world.add_topic("T")
    assert (await world.call(215, {"topic": "T"})).code == 0


async def test_a_deletion_that_its_leader_lost_meanwhile_is_not_acknowledged_by_what_stands_there_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member of a DLedger group was deposed and leads again: others' entries are committed where the record was."""
    world = BrokerWorld()
    world.add_topic("T")
    asked: list[Callable[[ResponseCode], None]] = []
    is_lost = False

    def when(end_offset: int, done: Callable[[ResponseCode], None]) -> bool:
        asked.append(done)
        return not is_lost

    async def persisted() -> None:
        nonlocal is_lost
        is_lost = True
        for done in asked:
            done(ResponseCode.SYSTEM_ERROR)

    monkeypatch.setattr(world.acknowledgement, "when", when)
    monkeypatch.setattr(world.topics, "persisted", persisted)
    answer = await world.call(215, {"topic": "T"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not safely yet" in (answer.remark or "")


async def test_blank_and_system_topics_cannot_be_deleted() -> None:
    world = BrokerWorld()
    assert (await world.call(215, {"topic": " "})).remark == "The specified topic is blank."
    assert (await world.call(215, {"topic": "BenchmarkTest"})).code == 29


async def test_all_topics_come_in_one_answer_or_in_pages() -> None:
    world = BrokerWorld()
    whole = await world.call(21)
    table: dict[str, Any] = parsed(whole)["topicConfigTable"]
    assert set(table) == set(world.topics.topic_config_table)
    assert whole.ext == {"totalTopicNum": str(len(table))}
    assert {"dataVersion", "mappingDataVersion", "topicQueueMappingDetailMap"} <= set(parsed(whole))
    version = world.topics.data_version.encode().decode()
    seen: list[str] = []
    while len(seen) < len(table):
        ext = {"topicSeq": str(len(seen)), "maxTopicNum": "5", "dataVersion": version}
        page = parsed(await world.call(21, ext))["topicConfigTable"]
        assert 0 < len(page) <= 5
        seen.extend(page)
    assert sorted(seen) == sorted(table)
    stale = {"topicSeq": "5", "maxTopicNum": "5", "dataVersion": DataVersion(99).encode().decode()}
    assert set(parsed(await world.call(21, stale))["topicConfigTable"]) == set(sorted(table)[:5])


async def test_an_unknown_topic_is_17() -> None:
    world = BrokerWorld()
    missing = await world.call(351, {"topic": "Unknown"})
    assert (missing.code, missing.remark) == (17, "No topic in this broker. topic: Unknown")
    assert (await world.call(202, {"topic": "Unknown"})).code == 17


async def test_statistics_of_a_topic_name_every_queue_as_java_reads_it() -> None:
    world = BrokerWorld()
    world.add_topic("T", 2)
    world.store.fill("T", 1, [1000, 2000], first=3)
    answer = await world.call(202, {"topic": "T"})
    assert b'{{"brokerName":"broker-w","queueId":0,"topic":"T"}:{' in answer.body_bytes
    rows = {queue.queue_id: row for queue, row in parsed(answer)["offsetTable"].items()}
    assert rows[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert rows[1] == {"lastUpdateTimestamp": 2000, "maxOffset": 5, "minOffset": 3}
    assert parsed(answer)["topicPutTps"] == 0.0


async def test_system_topics_are_listed_and_unused_queues_cleaned() -> None:
    world = BrokerWorld()
    listed = parsed(await world.call(305))["topicList"]
    assert {"TBW102", "CHECKPOINT_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "WireCluster", "broker-w"} <= set(listed)
    assert (await world.call(316)).code == 0
    assert world.store.calls == []
    world.store.unused = {"Gone", "TBW102"}
    assert (await world.call(316)).code == 0
    assert world.store.calls[0] == ("put_deletion", {"Gone"})
