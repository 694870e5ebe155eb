"""Finding messages without consuming: by key, by unique key, by tag, by place."""

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from maxq.protocol.message.message import decode_message_id
from tests.integration.broker.harness import RunningBroker, messages_of

FOREVER = 2**63 - 1


async def query(
    broker: RunningBroker, topic: str, key: str, *, unique: bool = False, index_type: str | None = None,
    begin: int = 0, end: int = FOREVER, max_num: int = 32,
) -> RemotingCommand:  # fmt: skip
    header = QueryMessageRequestHeader(topic, key, max_num, begin, end, index_type)
    ext = header.encode() | {"_UNIQUE_KEY_QUERY": "true" if unique else "false"}
    return await broker.invoke(RemotingCommand(RequestCode.QUERY_MESSAGE, ext))


async def test_key_finds_every_message_that_carries_it(broker: RunningBroker) -> None:
    broker.create_topic("T")
    for i in range(6):
        await broker.send("T", b"m%d" % i, KEYS=f"all key{i % 2}", UNIQ_KEY=f"U{i}")
    reply = await query(broker, "T", "key1")
    assert reply.code == 0
    assert sorted(message.body for message in messages_of(reply)) == [b"m1", b"m3", b"m5"]
    assert len(messages_of(await query(broker, "T", "all"))) == 6
    newest = max(message.physical_offset for message in await broker.pull_messages("T"))
    assert reply.ext["indexLastUpdatePhyoffset"] == str(newest)
    assert int(reply.ext["indexLastUpdateTimestamp"]) > 0


async def test_unique_key_finds_its_message(broker: RunningBroker) -> None:
    broker.create_topic("T")
    for i in range(3):
        await broker.send("T", b"m%d" % i, UNIQ_KEY=f"U{i}")
    for found in (await query(broker, "T", "U2", unique=True), await query(broker, "T", "U2", index_type="U")):
        assert [message.body for message in messages_of(found)] == [b"m2"]


async def test_key_of_another_topic_or_time_is_22_with_an_empty_header(broker: RunningBroker) -> None:
    broker.create_topic("T")
    await broker.send("T", b"x", KEYS="k")
    for reply in (
        await query(broker, "Other", "k"),
        await query(broker, "T", "nokey"),
        await query(broker, "T", "k", end=1),
    ):
        assert (reply.code, reply.remark) == (22, "can not find message, maybe time range not correct")
        assert set(reply.ext) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


async def test_unknown_index_type_is_29(broker: RunningBroker) -> None:
    assert (await query(broker, "T", "k", index_type="X")).code == 29


async def test_message_is_viewed_by_its_offset_id(broker: RunningBroker) -> None:
    broker.create_topic("T")
    sent = await broker.send("T", b"look", KEYS="k")
    _, offset = decode_message_id(sent.ext["msgId"])
    reply = await broker.invoke(
        RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset, "T").encode())
    )
    assert reply.code == 0
    (message,) = messages_of(reply)
    assert (message.body, message.offset_msg_id) == (b"look", sent.ext["msgId"])


async def test_offset_without_a_message_is_1_with_the_offset(broker: RunningBroker) -> None:
    broker.create_topic("T")
    await broker.send("T", b"look")
    for offset in (99_999_999, 7, -5):
        reply = await broker.invoke(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}))
        assert (reply.code, reply.remark) == (1, f"can not find message by the offset, {offset}")
