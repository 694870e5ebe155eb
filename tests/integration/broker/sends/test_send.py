"""Sends to a running broker: what is stored, what is answered, and every refusal."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message import message_const
from maxq.protocol.message.message import Message, decode_batch, decode_message_id, encode_batch, encode_host
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.runtime.files.kernel_sync import Done
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.context.running_flags import DISK_FULL
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, messages_of, until

V1, V2, BATCH = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    broker.create_topic("T", queues=2)
    return "T"


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("code", [V1, V2])
async def test_answer_names_where_the_message_is(
    broker: RunningBroker, topic: str, code: RequestCode, serialize_type: SerializeType
) -> None:
    for expected_offset in range(2):
        request = broker.send_request(topic, b"hello", code=code, queue_id=1, TAGS="TagA", KEYS="k")
        request.serialize_type = serialize_type
        reply = await broker.invoke(request)
        assert reply.code == 0, reply.remark
        assert reply.serialize_type == serialize_type
        assert set(reply.ext) == {"msgId", "queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON"}
        assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("1", str(expected_offset))
        assert (reply.ext["MSG_REGION"], reply.ext["TRACE_ON"]) == ("DefaultRegion", "true")
        host, physical_offset = decode_message_id(reply.ext["msgId"])
        assert host == encode_host("127.0.0.1", broker.controller.port)
        stored = broker.controller.store.look_message_by_offset(physical_offset)
        assert stored is not None
        assert (stored.body, stored.queue_id, stored.queue_offset) == (b"hello", 1, expected_offset)
        assert stored.uniq_key == reply.ext["transactionId"]


async def test_stored_properties_are_the_senders_and_the_brokers(broker: RunningBroker, topic: str) -> None:
    await broker.send(topic, b"x", TAGS="TagA", UNIQ_KEY="U1", POP_CK="forged", color="grün")
    (message,) = await broker.pull_messages(topic)
    assert message.properties == {
        "TAGS": "TagA",
        "UNIQ_KEY": "U1",
        "color": "grün",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert message.born_host_text.startswith("127.0.0.1:")
    assert message.store_host_text == broker.address


async def test_one_way_send_is_stored_and_not_answered(broker: RunningBroker, topic: str) -> None:
    pull = asyncio.create_task(broker.pull(topic, wait_ms=8_000, sys_flag=6))
    await broker.until_held(topic)
    await broker.client.invoke_oneway(broker.address, broker.send_request(topic, b"one way"))
    assert b"one way" in (await pull).body_bytes


async def test_negative_queue_id_means_any_queue(broker: RunningBroker, topic: str) -> None:
    queues = {(await broker.send(topic, b"x", queue_id=-1, POP_CK="x")).ext["queueId"] for _ in range(40)}
    assert queues == {"0", "1"}


async def test_unknown_topic_is_made_from_its_template_and_is_on_disk_before_the_answer(broker: RunningBroker) -> None:
    reply = await broker.send("Fresh", b"x")
    assert reply.code == 0
    config = broker.controller.topics.select_topic_config("Fresh")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)
    on_disk = (broker.folder / "config" / "topics.json").read_text()
    assert '"Fresh"' in on_disk


async def test_unknown_topic_without_automatic_creation_is_17(start_broker: Start) -> None:
    broker = await start_broker(autoCreateTopicEnable="false")
    reply = await broker.send("Fresh", b"x")
    assert reply.code == 17
    assert (reply.remark or "").startswith(
        "topic[Fresh] not exist, apply first please!\nSee https://rocketmq.apache.org"
    )
    assert set(reply.ext) == {"MSG_REGION", "TRACE_ON"}


async def test_refusals_by_name_and_queue(broker: RunningBroker, topic: str) -> None:
    cases = {
        "bad topic!": (29, "illegal characters"),
        "x" * 128: (29, "longer than topic max length: 127 (128 characters)"),
        "SCHEDULE_TOPIC_XXXX": (16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden. Only the broker "),
    }
    for name, (code, remark) in cases.items():
        reply = await broker.send(name, b"x")
        assert (reply.code, remark in (reply.remark or "")) == (code, True), (name, reply.code, reply.remark)
    reply = await broker.send(topic, b"x", queue_id=77)
    assert reply.code == 29
    assert (
        "request queueId[77] is illegal, TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}] Producer: 127.0.0.1:" in reply.remark
    )  # type: ignore[operator]
    assert "the queue ids of this broker are below 2: fetch the route again" in reply.remark  # type: ignore[operator]
    assert not broker.controller.topics.contains_topic("%RETRY%G")


async def test_too_large_messages_are_13_with_size_and_limit(start_broker: Start) -> None:
    broker = await start_broker(maxMessageSize=8192)
    broker.create_topic("T")
    assert (await broker.send("T", bytes(8192))).code == 0
    reply = await broker.send("T", bytes(8193))
    assert reply.code == 13
    remark = reply.remark or ""
    assert remark.startswith(
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit 8192B, msg properties length limit 32KB."
    )
    assert "8193" in remark
    reply = await broker.send("T", b"x", big="p" * 33_000)
    assert reply.code == 13
    assert "32767" in (reply.remark or "")


async def test_message_without_a_body_is_13(broker: RunningBroker, topic: str) -> None:
    reply = await broker.send(topic, b"", DELAY="0")
    assert (reply.code, reply.remark) == (13, "the message is illegal: it has no body; send at least 1 byte")
    assert (await broker.send(topic, b"", code=BATCH, batch=True)).code == 13


@pytest.mark.parametrize(
    "properties",
    [
        {"TRAN_MSG": "true"},
        {"TRAN_MSG": "TRUE"},
        {"DELAY": "3"},
        {"TIMER_DELAY_SEC": "3"},
        {"TIMER_DELAY_MS": "3"},
        {"TIMER_DELIVER_MS": "99999999999999"},
        {"TIMER_DEL_UNIQKEY": "u"},
    ],
)
async def test_a_batch_holds_no_message_that_waits(
    broker: RunningBroker, topic: str, properties: dict[str, str]
) -> None:
    end = broker.controller.store.max_physical_offset
    body = encode_batch([Message(topic, b"b", dict(properties))])
    reply = await broker.send(topic, body, code=BATCH, batch=True)
    assert reply.code == 13
    assert (reply.remark or "").startswith("a batch cannot ")
    assert broker.controller.store.max_physical_offset == end


@pytest.mark.parametrize("name", message_const.NOT_IN_BATCHES)
async def test_nor_does_one_for_a_queue_that_has_messages(broker: RunningBroker, topic: str, name: str) -> None:
    """Those take another way."""
    assert (await broker.send(topic, b"before", UNIQ_KEY="U1")).code == 0
    end = broker.controller.store.max_physical_offset
    value = "true" if name == "TRAN_MSG" else "3"
    body = encode_batch([Message(topic, b"good", {"TAGS": "T"}), Message(topic, b"bad", {"KEYS": "k", name: value})])
    reply = await broker.send(topic, body, code=BATCH, batch=True)
    assert (reply.code, broker.controller.store.max_physical_offset) == (13, end)
    assert name in (reply.remark or "")


@pytest.mark.parametrize("name", ["TRAN", "TRAN_MSG2", "DELAYED", "POP_CK_OFFSET", "TIMER", "PRIORITY"])
async def test_names_like_those_are_the_users(broker: RunningBroker, topic: str, name: str) -> None:
    assert (await broker.send(topic, b"before", UNIQ_KEY="U1")).code == 0
    body = encode_batch([Message(topic, b"b", {name: "3", "TAGS": "T"})])
    assert (await broker.send(topic, body, code=BATCH, batch=True)).code == 0
    assert (await broker.pull_messages(topic, 1))[0].properties == {name: "3", "TAGS": "T"}


@pytest.mark.parametrize("sys_flag", [8, 12])
async def test_what_ends_a_transaction_is_the_brokers_to_write(
    broker: RunningBroker, topic: str, sys_flag: int
) -> None:
    """As a message that was committed it would be shown at once, and the half message it names be taken for decided."""
    half = await broker.send(topic, b"half", sys_flag=4, UNIQ_KEY="U1", TRAN_MSG="true", PGROUP="PG")
    end = broker.controller.store.max_physical_offset
    forged = {"UNIQ_KEY": "U1", "TRAN_MSG": "true", "PGROUP": "PG", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    reply = await broker.send(topic, b"forged", sys_flag=sys_flag, **forged)
    assert (half.code, reply.code) == (0, 13) and "only brokers write" in (reply.remark or "")
    assert broker.controller.store.max_physical_offset == end


@pytest.mark.parametrize(
    ("number", "is_right"), [("2", True), ("3", False), ("30000", False), ("0", False), ("x", False)]
)
async def test_an_inner_batch_of_a_client_has_as_many_messages_as_it_says(
    broker: RunningBroker, number: str, is_right: bool
) -> None:
    """It takes so many offsets of its queue."""
    broker.create_topic("Bcq", queues=1, attributes={"+queue.type": "BatchCQ"})
    body = encode_batch([Message("Bcq", b"a"), Message("Bcq", b"b")])
    sys_flag = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    reply = await broker.send("Bcq", body, sys_flag=sys_flag, INNER_NUM=number)
    assert (reply.code == 0) == is_right, reply.remark
    assert is_right or (reply.code == 13 and f"a batch of {number} messages, it has 2" in (reply.remark or ""))
    again = await broker.send("Bcq", b"no batch", sys_flag=sys_flag, INNER_NUM="1")
    assert again.code == 13


async def test_transaction_bits_without_the_property_are_refused_too(broker: RunningBroker, topic: str) -> None:
    assert (await broker.send(topic, b"x", sys_flag=MessageSysFlag.TRANSACTION_PREPARED)).code == 13


async def test_rejected_transactions_are_16(start_broker: Start) -> None:
    broker = await start_broker(rejectTransactionMessage="true")
    broker.create_topic("T")
    assert (await broker.send("T", b"x", TRAN_MSG="true")).code == 16


async def test_delay_level_zero_is_a_normal_message(broker: RunningBroker, topic: str) -> None:
    assert (await broker.send(topic, b"x", DELAY="0", TRAN_MSG="false")).code == 0


async def test_order_topic_of_a_broker_that_may_not_write_is_16(start_broker: Start) -> None:
    broker = await start_broker(brokerPermission=4)
    broker.create_topic("Ordered", order=True)
    broker.create_topic("Other")
    reply = await broker.send("Ordered", b"x")
    assert reply.code == 16
    assert "sending message is forbidden" in (reply.remark or "")
    assert (await broker.send("Other", b"x")).code == 0


async def test_compaction_topic_needs_a_key(broker: RunningBroker) -> None:
    broker.create_topic("Compact", attributes={"+cleanup.policy": "COMPACTION"})
    assert (await broker.send("Compact", b"x")).code == 13
    assert (await broker.send("Compact", b"x", KEYS="k")).code == 0


async def test_before_its_time_the_broker_takes_nothing(start_broker: Start) -> None:
    broker = await start_broker(startAcceptSendRequestTimeStamp=4_102_444_800_000)
    broker.create_topic("T")
    reply = await broker.send("T", b"x")
    assert reply.code == 1
    assert "broker unable to service, until 2100-01-01" in (reply.remark or "")


async def test_multi_tag_topics_mark_their_messages(broker: RunningBroker) -> None:
    broker.create_topic("Multi", topic_filter_type=TopicFilterType.MULTI_TAG)
    await broker.send("Multi", b"x", TAGS="a||b")
    (message,) = await broker.pull_messages("Multi")
    assert message.sys_flag & MessageSysFlag.MULTI_TAGS


@pytest.mark.parametrize(("priority", "queue"), [("0", "0"), ("1", "1"), ("99", "3")])
async def test_priority_chooses_the_queue(broker: RunningBroker, priority: str, queue: str) -> None:
    broker.create_topic("Prio", queues=4)
    reply = await broker.send("Prio", b"x", queue_id=2, _SYS_MSG_PRIORITY_=priority)
    assert (reply.code, reply.ext["queueId"]) == (0, queue)


async def test_priority_of_an_ordered_message_is_taken_from_it(broker: RunningBroker) -> None:
    broker.create_topic("Prio", queues=4)
    reply = await broker.send("Prio", b"x", queue_id=2, _SYS_MSG_PRIORITY_="1", __SHARDINGKEY="s")
    assert reply.ext["queueId"] == "2"
    (message,) = await broker.pull_messages("Prio", queue_id=2)
    assert "_SYS_MSG_PRIORITY_" not in message.properties


async def test_full_disk_is_14_with_the_cause(broker: RunningBroker, topic: str) -> None:
    broker.controller.store.flags.set(DISK_FULL, "the disk is 91 % full, the limit is 90 %; free some of it")
    reply = await broker.send(topic, b"x")
    assert reply.code == 14
    assert "91 % full" in (reply.remark or "")
    broker.controller.store.flags.clear(DISK_FULL)
    assert (await broker.send(topic, b"x")).code == 0


async def test_missing_header_field_is_named(broker: RunningBroker, topic: str) -> None:
    request = broker.send_request(topic, b"x")
    del request.ext["e"]
    reply = await broker.invoke(request)
    assert (reply.code, reply.remark) == (1, "the custom field <queueId> is null")


async def test_full_names_on_the_short_code_are_understood(broker: RunningBroker, topic: str) -> None:
    request = broker.send_request(topic, b"x", code=V1)
    request.code = V2
    assert (await broker.invoke(request)).code == 0


# ---- batches ------------------------------------------------------------------------------------------------------


def three(topic: str) -> bytes:
    return encode_batch([Message(topic, b"b%d" % i, {"TAGS": f"Tag{i}", "KEYS": f"key{i}"}, flag=i) for i in range(3)])


@pytest.mark.parametrize("code", [V1, V2, BATCH])
async def test_batch_becomes_single_messages_in_a_row(broker: RunningBroker, topic: str, code: RequestCode) -> None:
    await broker.send(topic, b"before")
    request = broker.send_request(topic, three(topic), code=code, batch=True, WAIT="true")
    if code == V1:
        request.ext["batch"] = "1"  # as the C++ client writes it
    reply = await broker.invoke(request)
    assert reply.code == 0, reply.remark
    assert reply.ext["queueOffset"] == "1"
    messages = await broker.pull_messages(topic, 1)
    assert [message.body for message in messages] == [b"b0", b"b1", b"b2"]
    assert [message.queue_offset for message in messages] == [1, 2, 3]
    assert [message.tags for message in messages] == ["Tag0", "Tag1", "Tag2"]
    assert [message.flag for message in messages] == [0, 1, 2]
    assert [message.properties for message in messages] == [{"TAGS": f"Tag{i}", "KEYS": f"key{i}"} for i in range(3)]
    assert reply.ext["msgId"].split(",") == [message.offset_msg_id for message in messages]


@pytest.mark.parametrize("more", [{}, {"DELAY": "0"}], ids=["plain", "general"])
async def test_messages_of_a_batch_keep_their_own_unique_keys(
    broker: RunningBroker, topic: str, more: dict[str, str]
) -> None:
    body = encode_batch([Message(topic, b"b", {"UNIQ_KEY": f"U{i}"}) for i in range(3)])
    assert (await broker.send(topic, body, code=BATCH, batch=True, **more)).code == 0
    assert [message.uniq_key for message in await broker.pull_messages(topic)] == ["U0", "U1", "U2"]


async def test_broken_batches_are_13(broker: RunningBroker, topic: str) -> None:
    end = broker.controller.store.max_physical_offset
    for body in (three(topic)[:-1], b"\0\0\0\x05hello"):
        reply = await broker.send(topic, body, code=BATCH, batch=True, UNIQ_KEY="u")
        assert reply.code == 13, body
        assert "the batch is illegal: a batch record at byte " in (reply.remark or "")
        assert "whose sizes are theirs" in (reply.remark or "")
    assert broker.controller.store.max_physical_offset == end


async def test_batch_over_the_limit_is_13_and_nothing_of_it_is_stored(start_broker: Start) -> None:
    broker = await start_broker(maxMessageSize=4096)
    broker.create_topic("T")
    end = broker.controller.store.max_physical_offset
    body = encode_batch([Message("T", bytes(3000)), Message("T", bytes(3000))])
    reply = await broker.send("T", body, code=BATCH, batch=True)
    assert reply.code == 13
    assert broker.controller.store.max_physical_offset == end


@pytest.mark.parametrize("more", [{}, {"DELAY": "0"}], ids=["plain", "general"])
async def test_a_batch_of_too_many_messages_is_13_and_nothing_of_it_is_stored(
    broker: RunningBroker, topic: str, more: dict[str, str]
) -> None:
    body = encode_batch([Message(topic, b"b")] * 32_768)
    end = broker.controller.store.max_physical_offset
    reply = await broker.send(topic, body, code=BATCH, batch=True, **more)
    assert reply.code == 13
    assert "more than 32767 messages; send smaller batches" in (reply.remark or "")
    assert broker.controller.store.max_physical_offset == end


async def test_batch_queue_keeps_a_batch_as_one_record(broker: RunningBroker) -> None:
    broker.create_topic("Bcq", queues=1, attributes={"+queue.type": "BatchCQ"})
    pull = asyncio.create_task(broker.pull("Bcq", sys_flag=SUSPEND | SUBSCRIPTION, wait_ms=8_000))
    await broker.until_held("Bcq")
    reply = await broker.send("Bcq", three("Bcq"), code=BATCH, batch=True, UNIQ_KEY="whole")
    assert (reply.code, reply.ext["queueOffset"], reply.ext["batchUniqId"]) == (0, "0", "whole"), reply.remark
    (record,) = messages_of(await pull)
    assert record.sys_flag & MessageSysFlag.INNER_BATCH
    assert (record.properties["INNER_NUM"], record.properties["INNER_BASE"]) == ("3", "0")
    assert [message.body for message in decode_batch(record.body, "Bcq")] == [b"b0", b"b1", b"b2"]
    reply = await broker.send("Bcq", three("Bcq"), code=BATCH, batch=True)
    assert reply.ext["queueOffset"] == "3"


# ---- mixed ways ---------------------------------------------------------------------------------------------------


async def test_plain_and_general_sends_share_queues_and_statistics(broker: RunningBroker, topic: str) -> None:
    for i in range(6):
        more = {"UNIQ_KEY": f"U{i}"} if i % 2 else {"UNIQ_KEY": f"U{i}", "DELAY": "0"}  # DELAY: the slow path
        reply = await broker.send(topic, b"%d" % i, **more)
        assert reply.ext["queueOffset"] == str(i)
    messages = await broker.pull_messages(topic)
    assert [message.body for message in messages] == [b"%d" % i for i in range(6)]
    await broker.controller.stats.sample()
    item = broker.controller.stats.view("TOPIC_PUT_NUMS", topic)
    assert item is not None and item.value == 6


async def test_topic_that_changes_counts_at_once(broker: RunningBroker, topic: str) -> None:
    assert (await broker.send(topic, b"x", queue_id=3, UNIQ_KEY="u")).code == 29
    broker.create_topic(topic, queues=4)
    assert (await broker.send(topic, b"x", queue_id=3, UNIQ_KEY="u")).code == 0


async def test_live_change_of_region_and_trace_reaches_answers_and_messages(broker: RunningBroker, topic: str) -> None:
    broker.settings.update({"traceOn": "false"})
    for more in ({"UNIQ_KEY": "u"}, {"DELAY": "0"}):
        reply = await broker.send(topic, b"x", **more)
        assert reply.ext["TRACE_ON"] == "false"
    messages = await broker.pull_messages(topic)
    assert [message.properties["TRACE_ON"] for message in messages] == ["false", "false"]


async def test_data_version_of_topics_on_disk_follows_creation(broker: RunningBroker) -> None:
    before = broker.controller.topics.data_version.counter
    await broker.send("Fresh", b"x")
    stored = json.loads((broker.folder / "config" / "topics.json").read_text())
    assert stored["dataVersion"]["counter"] == broker.controller.topics.data_version.counter > before


# ---- SYNC_FLUSH ---------------------------------------------------------------------------------------------------


async def test_sync_flush_answers_after_the_disk_has_it(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("T")
    for more in ({"UNIQ_KEY": "u"}, {"DELAY": "0"}):
        reply = await broker.send("T", b"x", **more)
        assert reply.code == 0
        _, offset = decode_message_id(reply.ext["msgId"])
        assert broker.controller.store.flushed_offset > offset


async def test_wait_false_does_not_wait_for_the_disk(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("T")
    reply = await broker.send("T", b"x", WAIT="false", DELAY="0")
    assert reply.code == 0


class StuckDisk(SystemDisk):
    """A disk whose flushes wait until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.let_go.set()

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SystemMappedRegion:
        region = StuckRegion(Path(path), size, read_only=read_only, files=self._files)
        region.let_go = self.let_go
        return region


class StuckRegion(SystemMappedRegion):
    """Only `flush` brings it to the disk: nothing syncs it on the loop or beside it."""

    let_go: threading.Event

    def flush(self, start: int, end: int) -> None:
        self.let_go.wait()
        super().flush(start, end)

    def flush_at_once(self) -> bool:
        return False

    def flush_soon(self, done: Done) -> bool:
        return False


@pytest.fixture
def disk() -> Iterator[StuckDisk]:
    """A disk that is free again at the end, before the broker is stopped."""
    made = StuckDisk()
    yield made
    made.let_go.set()


@pytest.mark.parametrize("more", [{"UNIQ_KEY": "u"}, {"DELAY": "0"}], ids=["fast path", "slow path"])
async def test_disk_that_is_too_slow_is_10_with_the_whole_header(
    start_broker: Start, disk: StuckDisk, more: dict[str, str]
) -> None:
    broker = await start_broker(disk=disk, flushDiskType="SYNC_FLUSH", syncFlushTimeout=50)
    broker.create_topic("T")
    disk.let_go.clear()
    reply = await broker.send("T", b"x", **more)
    assert reply.code == 10
    assert set(reply.ext) >= {"msgId", "queueId", "queueOffset", "transactionId"}
    assert (await broker.pull("T")).code == 19  # not durable: nobody may read it yet
    disk.let_go.set()
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    assert [message.body for message in await broker.pull_messages("T")] == [b"x"]


async def test_waiting_sends_are_bounded_while_the_disk_is_stuck(start_broker: Start, disk: StuckDisk) -> None:
    broker = await start_broker(disk=disk, flushDiskType="SYNC_FLUSH", sendThreadPoolQueueCapacity=3)
    broker.create_topic("T")
    disk.let_go.clear()
    waiting = [asyncio.create_task(broker.send("T", b"x", DELAY="0")) for _ in range(3)]
    await until(lambda: broker.controller.fast_failure.sends.count == 3)
    reply = await broker.send("T", b"x", DELAY="0")
    assert reply.code == 2
    assert "3 send requests wait for the disk, the limit is 3 (sendThreadPoolQueueCapacity)" in (reply.remark or "")
    assert (await broker.pull("T")).code == 19  # other kinds go on
    disk.let_go.set()
    assert [reply.code for reply in await asyncio.gather(*waiting)] == [0, 0, 0]


async def test_unfinished_sends_above_the_capacity_are_refused(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    broker.settings.broker = replace(broker.settings.broker, send_thread_pool_queue_capacity=1)
    broker.controller.fast_failure.sends.enter()
    reply = await broker.send("T", b"x")
    assert reply.code == 2
    assert (reply.remark or "").startswith("[OVERLOAD]system busy, start flow control for a while")
    broker.controller.fast_failure.sends.leave()
    assert (await broker.send("T", b"x")).code == 0
    assert broker.controller.fast_failure.refused.by_cause == {"OVERLOAD": 1}


async def test_header_of_v2_survives_the_way_back() -> None:
    header = SendMessageRequestHeader("P", "T", "TBW102", 4, 0, 0, 1, 0, "a\x01b\x02", 0, False, False)
    assert SendMessageRequestHeader.decode_for(V2, RemotingCommand(V2, header.encode_v2()).ext) == header


async def test_a_send_whose_wait_fails_in_an_unforeseen_way_is_answered(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("T")

    def outcome(end_offset: int) -> "asyncio.Future[ResponseCode]":
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()
        future.set_exception(RuntimeError("the replicas went astray"))
        return future

    monkeypatch.setattr(broker.controller.acknowledgement, "outcome", outcome)
    reply = await broker.send("T", b"x", DELAY="0")  # the slow path
    assert reply.code == 1
    assert "stored, but then" in (reply.remark or "") and "went astray" in (reply.remark or "")
    assert broker.controller.fast_failure.sends.count == 0
