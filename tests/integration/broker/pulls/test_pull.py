"""Pulls from a running broker: checks, results, filters, long polling."""

import asyncio
from dataclasses import replace

import pytest

from maxq.codes import RequestCode
from maxq.errors import RemotingError
from maxq.protocol.enums import MessageModel
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.message.message import Message, encode_batch
from maxq.remoting.client import RemotingClient
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, messages_of, until

ANSWER_FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag"}


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    """Queue 0 holds m0 … m9 with tags TagA and TagB in turn."""
    broker.create_topic("T", queues=2)
    for i in range(10):
        await broker.send("T", b"m%d" % i, TAGS="TagB" if i % 2 else "TagA", UNIQ_KEY=f"U{i}")
    return "T"


# ---- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_found_messages_are_the_stored_bytes(broker: RunningBroker, topic: str, code: RequestCode) -> None:
    reply = await broker.pull(topic, 3, max_nums=4, code=code)
    assert (reply.code, reply.remark) == (0, "FOUND")
    assert set(reply.ext) == ANSWER_FIELDS
    assert (reply.ext["nextBeginOffset"], reply.ext["minOffset"], reply.ext["maxOffset"]) == ("7", "0", "10")
    messages = messages_of(reply)
    assert [message.body for message in messages] == [b"m3", b"m4", b"m5", b"m6"]
    start = messages[0].physical_offset
    assert reply.body_bytes == bytes(broker.controller.store.commit_log.get(start, len(reply.body_bytes)) or b"")


async def test_binary_headers_are_answered_in_kind(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic)
    assert reply.serialize_type == SerializeType.JSON
    header = PullMessageRequestHeader("G", topic, 0, 0, 32, 4, 0, 0, 0, "*", "TAG")
    request = RemotingCommand(RequestCode.PULL_MESSAGE, header.encode(), serialize_type=SerializeType.ROCKETMQ)
    binary = await broker.invoke(request)
    assert binary.serialize_type == SerializeType.ROCKETMQ
    assert (binary.code, binary.ext, binary.body_bytes) == (reply.code, reply.ext, reply.body_bytes)


@pytest.mark.parametrize(
    ("offset", "tags", "code", "remark", "next_offset"),
    [
        (0, "NoSuchTag", 20, "NO_MATCHED_MESSAGE", "10"),
        (10, "*", 19, "OFFSET_OVERFLOW_ONE", "10"),
        (11, "*", 21, "OFFSET_OVERFLOW_BADLY", "10"),
        (1_000_000, "*", 21, "OFFSET_OVERFLOW_BADLY", "10"),
        (-1, "*", 21, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_every_result_has_its_code_and_where_to_go_on(
    broker: RunningBroker, topic: str, offset: int, tags: str, code: int, remark: str, next_offset: str
) -> None:
    reply = await broker.pull(topic, offset, tags=tags)
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (code, remark, next_offset)
    assert set(reply.ext) == ANSWER_FIELDS
    assert reply.body_length == 0


async def test_empty_queue_is_19_at_its_start_and_21_elsewhere(broker: RunningBroker, topic: str) -> None:
    assert (await broker.pull(topic, 0, queue_id=1)).code == 19
    assert (await broker.pull(topic, 5, queue_id=1)).code == 21


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("TagA", [0, 2, 4, 6, 8]), ("TagA || TagB", list(range(10))), (" TagB ", [1, 3, 5, 7, 9]), ("", list(range(10)))],
)
async def test_tags_filter_and_pass_over(
    broker: RunningBroker, topic: str, expression: str, expected: list[int]
) -> None:
    reply = await broker.pull(topic, tags=expression)
    assert [message.body for message in messages_of(reply)] == [b"m%d" % i for i in expected]
    assert reply.ext["nextBeginOffset"] in ("9", "10")


async def test_messages_of_a_batch_are_pulled_one_by_one(broker: RunningBroker, topic: str) -> None:
    body = encode_batch([Message(topic, b"b%d" % i) for i in range(3)])
    await broker.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert [message.body for message in await broker.pull_messages(topic, 11, max_nums=1)] == [b"b1"]


# ---- refusals -----------------------------------------------------------------------------------------------------


async def test_refusals_name_what_is_wrong(broker: RunningBroker, topic: str) -> None:
    broker.create_topic("WriteOnly", perm=2)
    missing = await broker.pull("Nowhere")
    assert missing.code == 17
    assert (missing.remark or "").startswith("topic[Nowhere] not exist, apply first please! \nSee https://rocketmq")
    closed = await broker.pull("WriteOnly")
    assert (closed.code, closed.ext) == (16, {"forbiddenType": "3"})
    assert closed.remark == (
        "the topic[WriteOnly] pulling message is forbidden: its perm is 2, reading needs 4; set it with updateTopicPerm"
    )
    for queue_id in (99, -1):
        outside = await broker.pull(topic, queue_id=queue_id)
        assert outside.code == 29
        assert f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[/127.0.0.1:" in (
            outside.remark or ""
        )


async def test_unknown_group_without_automatic_creation_is_26(start_broker: Start) -> None:
    broker = await start_broker(autoCreateSubscriptionGroup="false")
    broker.create_topic("T")
    reply = await broker.pull("T", group="Unknown")
    assert reply.code == 26
    assert (reply.remark or "").startswith("subscription group [Unknown] does not exist, \nSee https://rocketmq")


async def test_group_that_is_switched_off_is_16(broker: RunningBroker, topic: str) -> None:
    await broker.pull(topic)
    broker.controller.groups.disable_consume("G", "[CONSUMER_BEHIND]it was far behind")
    reply = await broker.pull(topic)
    assert (reply.code, reply.ext) == (16, {"forbiddenType": "2"})
    assert "[CONSUMER_BEHIND]it was far behind" in (reply.remark or "")
    assert broker.controller.fast_failure.refused.by_cause["CONSUMER_BEHIND"] == 1


async def test_broker_that_may_not_be_read_is_16(broker: RunningBroker, topic: str) -> None:
    broker.settings.update({"brokerPermission": "2"})
    reply = await broker.pull(topic)
    assert (reply.code, reply.ext) == (16, {"forbiddenType": "1"})
    assert "brokerPermission is 2" in (reply.remark or "")


async def test_lite_pull_can_be_switched_off(broker: RunningBroker, topic: str) -> None:
    broker.settings.update({"litePullMessageEnable": "false"})
    assert (await broker.pull(topic, code=RequestCode.LITE_PULL_MESSAGE)).code == 16
    assert (await broker.pull(topic)).code == 0


async def test_sql92_is_refused_with_the_setting_it_needs(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic, tags="a > 1", expression_type="SQL92")
    assert reply.code == 1
    assert (reply.remark or "").startswith("The broker does not support consumer to filter message by SQL92")
    broker.settings.broker = replace(broker.settings.broker, enable_property_filter=True)
    reply = await broker.pull(topic, tags="a >>> 1", expression_type="SQL92")
    assert reply.code == 23


async def test_expression_without_a_tag_is_23(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic, tags=" || ")
    assert reply.code == 23
    assert (reply.remark or "").startswith("parse the consumer's subscription failed")


async def test_missing_header_field_is_named(broker: RunningBroker, topic: str) -> None:
    reply = await broker.invoke(RemotingCommand(RequestCode.PULL_MESSAGE, {"consumerGroup": "G", "topic": topic}))
    assert (reply.code, reply.remark) == (1, "the custom field <queueId> is null")


# ---- subscription from the heartbeat ------------------------------------------------------------------------------


async def test_subscription_of_the_heartbeat_filters(broker: RunningBroker, topic: str) -> None:
    await broker.heartbeat("G", {topic: "TagB"}, sub_version=5)
    messages = await broker.pull_messages(topic, sys_flag=0, tags=None, sub_version=5)
    assert [message.body for message in messages] == [b"m1", b"m3", b"m5", b"m7", b"m9"]


async def test_pull_before_the_heartbeat_is_24(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic, sys_flag=0)
    assert reply.code == 24
    assert (reply.remark or "").startswith("the consumer's group info not exist")


async def test_topic_that_the_group_does_not_subscribe_to_is_24(broker: RunningBroker, topic: str) -> None:
    await broker.heartbeat("G", {"Other": "*"})
    reply = await broker.pull(topic, sys_flag=0)
    assert reply.code == 24
    assert (reply.remark or "").startswith("the consumer's subscription not exist")


async def test_pull_newer_than_the_heartbeat_is_25(broker: RunningBroker, topic: str) -> None:
    await broker.heartbeat("G", {topic: "*"}, sub_version=5)
    reply = await broker.pull(topic, sys_flag=0, sub_version=6)
    assert reply.code == 25
    assert "the pull has version 6, the last heartbeat 5" in (reply.remark or "")


async def test_broadcasting_can_be_forbidden_to_a_group(broker: RunningBroker, topic: str) -> None:
    await broker.heartbeat("G", {topic: "*"}, model=MessageModel.BROADCASTING)
    groups = broker.controller.groups
    config = groups.find_subscription_group_config("G")
    assert config is not None
    groups.update_subscription_group_config(replace(config, consume_broadcast_enable=False))
    reply = await broker.pull(topic, sys_flag=0)
    assert (reply.code, reply.ext) == (16, {"forbiddenType": "4"})


async def test_unregistered_readers_can_be_rejected(start_broker: Start) -> None:
    broker = await start_broker(rejectPullConsumerEnable="true")
    broker.create_topic("T")
    await broker.send("T", b"x")
    assert (await broker.pull("T")).code == 24
    await broker.heartbeat("G", {"T": "*"})
    assert (await broker.pull("T")).code == 0
    assert (await broker.pull("T", group="TOOLS_CONSUMER")).code == 0


# ---- offsets ------------------------------------------------------------------------------------------------------


async def test_pull_commits_the_offset_it_carries(broker: RunningBroker, topic: str) -> None:
    await broker.pull(topic, 4, sys_flag=SUBSCRIPTION, commit_offset=3)
    assert broker.controller.offsets.query_offset("G", topic, 0) == -1
    await broker.pull(topic, 4, max_nums=2, sys_flag=SUBSCRIPTION | 1, commit_offset=3)
    assert broker.controller.offsets.query_offset("G", topic, 0) == 3
    assert broker.controller.offsets.query_pull_offset("G", topic, 0) == 6


async def test_pending_reset_is_told_once(broker: RunningBroker, topic: str) -> None:
    broker.controller.offsets.assign_reset_offsets(topic, "G", {0: 2})
    reply = await broker.pull(topic, 7)
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "2")
    assert (reply.ext["minOffset"], reply.ext["maxOffset"]) == ("0", "10")
    assert (await broker.pull(topic, 7)).code == 0


# ---- long polling -------------------------------------------------------------------------------------------------

HOLD = SUSPEND | SUBSCRIPTION


@pytest.mark.parametrize("plain", [True, False], ids=["fast path", "slow path"])
async def test_held_pull_is_answered_by_the_append(broker: RunningBroker, topic: str, plain: bool) -> None:
    pull = asyncio.create_task(broker.pull(topic, 10, sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held(topic)
    more = {"UNIQ_KEY": "u"} if plain else {"DELAY": "0"}
    await broker.send(topic, b"new", **more)
    reply = await pull
    assert (reply.code, reply.ext["nextBeginOffset"]) == (0, "11")
    assert [message.body for message in messages_of(reply)] == [b"new"]
    assert broker.controller.hold_service.held_count == 0


async def test_held_pull_on_a_queue_that_never_had_a_message_is_answered(broker: RunningBroker) -> None:
    broker.create_topic("Empty", queues=8)
    pull = asyncio.create_task(broker.pull("Empty", queue_id=7, sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held("Empty", 7)
    await broker.send("Empty", b"first", queue_id=7, UNIQ_KEY="u")
    assert [message.body for message in messages_of(await pull)] == [b"first"]


async def test_many_held_pulls_of_one_queue_are_all_answered(broker: RunningBroker, topic: str) -> None:
    pulls = [
        asyncio.create_task(broker.pull(topic, 10, group=f"G{i}", sys_flag=HOLD, wait_ms=8_000)) for i in range(20)
    ]
    await broker.until_held(topic, count=20)
    await broker.send(topic, b"new")
    for reply in await asyncio.gather(*pulls):
        assert [message.body for message in messages_of(reply)] == [b"new"]


async def test_held_pull_gets_what_others_of_its_queue_sent_under_sync_flush(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("T")
    pull = asyncio.create_task(broker.pull("T", sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held("T")
    assert (await broker.send("T", b"new", UNIQ_KEY="u")).code == 0
    assert [message.body for message in messages_of(await pull)] == [b"new"]


async def test_filtered_pull_stays_parked_behind_messages_it_does_not_want(broker: RunningBroker, topic: str) -> None:
    pull = asyncio.create_task(broker.pull(topic, 10, tags="TagC", sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held(topic)
    await broker.send(topic, b"not this", TAGS="TagA", UNIQ_KEY="u1")
    hold_service = broker.controller.hold_service
    (held,) = hold_service._by_queue[topic, 0]
    assert (held.first_offset, held.offset) == (10, 11)
    await broker.send(topic, b"this", TAGS="TagC", UNIQ_KEY="u2")
    reply = await pull
    assert [message.body for message in messages_of(reply)] == [b"this"]
    assert reply.ext["nextBeginOffset"] == "12"


async def test_safety_net_lets_the_offset_of_a_filtered_pull_move_on(broker: RunningBroker, topic: str) -> None:
    pull = asyncio.create_task(broker.pull(topic, 10, tags="TagC", sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held(topic)
    await broker.send(topic, b"not this", TAGS="TagA", UNIQ_KEY="u1")
    await broker.controller.hold_service.check()
    reply = await pull
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "11")


async def test_held_pull_that_gets_nothing_is_19_when_its_time_is_over(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic, 10, sys_flag=HOLD, wait_ms=1)
    assert (reply.code, reply.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert set(reply.ext) == ANSWER_FIELDS


async def test_pull_that_may_not_wait_is_answered_at_once(broker: RunningBroker, topic: str) -> None:
    reply = await broker.pull(topic, 10, sys_flag=SUBSCRIPTION, wait_ms=8_000)
    assert reply.code == 19


async def test_parked_pulls_are_bounded(start_broker: Start) -> None:
    broker = await start_broker(pullThreadPoolQueueCapacity=1)
    broker.create_topic("T")
    waiting = asyncio.create_task(broker.pull("T", sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held("T")
    assert (await broker.pull("T", sys_flag=HOLD, wait_ms=8_000)).code == 19
    await broker.send("T", b"x")
    assert (await waiting).code == 0


async def test_topic_deleted_under_a_held_pull_is_told_when_it_is_next_looked_at(
    broker: RunningBroker, topic: str
) -> None:
    pull = asyncio.create_task(broker.pull(topic, 10, sys_flag=HOLD, wait_ms=1_000))
    await broker.until_held(topic)
    broker.controller.topics.delete_topic_configs([topic])
    assert (await pull).code == 17


async def test_closed_connection_takes_its_held_pulls_along(broker: RunningBroker, topic: str) -> None:
    other = RemotingClient(broker.client._config, clock=broker._clock, rng=broker._rng)
    mine, broker.client = broker.client, other
    pull = asyncio.create_task(broker.pull(topic, 10, sys_flag=HOLD, wait_ms=8_000))
    await broker.until_held(topic)
    broker.client = mine
    await other.close()
    with pytest.raises(RemotingError):
        await pull
    await until(lambda: broker.controller.hold_service.held_count == 0)


# ---- readers that are far behind ----------------------------------------------------------------------------------


async def test_cold_read_is_suggested_to_the_slave_where_slaves_may_be_read(start_broker: Start) -> None:
    broker = await start_broker(slaveReadEnable="true", accessMessageInMemoryMaxRatio="0")
    broker.create_topic("T")
    for i in range(5):
        await broker.send("T", b"m%d" % i)
    reply = await broker.pull("T")
    assert reply.code == 0
    assert reply.ext["suggestWhichBrokerId"] == "1"
    assert [message.body for message in messages_of(reply)] == [b"m%d" % i for i in range(5)]
    assert (await broker.pull("T", 5)).ext["suggestWhichBrokerId"] == "0"


async def test_without_slave_reads_the_master_is_suggested(start_broker: Start) -> None:
    broker = await start_broker(accessMessageInMemoryMaxRatio="0")
    broker.create_topic("T")
    for i in range(5):
        await broker.send("T", b"m%d" % i)
    assert (await broker.pull("T")).ext["suggestWhichBrokerId"] == "0"


async def test_deliveries_are_counted(broker: RunningBroker, topic: str) -> None:
    await broker.pull(topic, max_nums=4)
    await broker.pull(topic, 4, tags="NoSuchTag")
    item = broker.controller.stats.view("GROUP_GET_NUMS", f"{topic}@G")
    assert item is not None and (item.value, item.times) == (4, 1)
