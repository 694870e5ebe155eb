"""A topic's message type, checked at send where the broker is told to (enableTopicMessageTypeCheck)."""

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.message.message import Message, encode_batch
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker

BATCH = RequestCode.SEND_BATCH_MESSAGE
TYPES = {
    "NORMAL": {},
    "FIFO": {"__SHARDINGKEY": "k"},
    "PRIORITY": {"_SYS_MSG_PRIORITY_": "1"},
    "LITE": {"__LITE_TOPIC": "child"},
    "DELAY": {"DELAY": "1"},
    "TRANSACTION": {"TRAN_MSG": "true"},
}


@pytest.mark.parametrize("declared", ["NORMAL", "FIFO", "PRIORITY", "MIXED", None])
@pytest.mark.parametrize("sent", ["NORMAL", "FIFO", "PRIORITY"])
async def test_a_topic_takes_only_its_type_of_message_where_that_is_checked(
    start_broker: Start, declared: str | None, sent: str
) -> None:
    broker = await start_broker(enableTopicMessageTypeCheck=True)
    broker.create_topic("Typed", attributes={} if declared is None else {"+message.type": declared})
    reply = await broker.send("Typed", b"x", **TYPES[sent])
    expected = declared or "NORMAL"
    if expected in (sent, "MIXED"):
        assert reply.code == 0, reply.remark
        return
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    remark = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {sent}"
    assert (reply.remark or "").startswith(remark)
    assert not await broker.pull_messages("Typed")


@pytest.mark.parametrize("sent", ["DELAY", "TRANSACTION", "LITE"])
async def test_a_normal_topic_refuses_what_is_not_normal(start_broker: Start, sent: str) -> None:
    broker = await start_broker(enableTopicMessageTypeCheck=True)
    broker.create_topic("Normal", attributes={"+message.type": "NORMAL"})
    reply = await broker.send("Normal", b"x", **TYPES[sent])
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"but actual type is {sent}" in (reply.remark or "")


async def test_each_message_of_a_batch_has_a_type(start_broker: Start) -> None:
    broker = await start_broker(enableTopicMessageTypeCheck=True)
    broker.create_topic("Normal", attributes={"+message.type": "NORMAL"})
    body = encode_batch([Message("Normal", b"b"), Message("Normal", b"b", TYPES["FIFO"])])
    reply = await broker.send("Normal", body, code=BATCH, batch=True)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "but actual type is FIFO" in (reply.remark or "")


async def test_types_are_checked_from_the_moment_it_is_switched_on(broker: RunningBroker) -> None:
    broker.create_topic("Normal", attributes={"+message.type": "NORMAL"})
    assert (await broker.send("Normal", b"x", **TYPES["FIFO"])).code == 0
    broker.settings.update({"enableTopicMessageTypeCheck": "true"})
    assert (await broker.send("Normal", b"x", **TYPES["FIFO"])).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await broker.send("Normal", b"x")).code == 0


@pytest.mark.parametrize(
    ("declared", "properties"),
    [("DELAY", {"REAL_TOPIC": "Typed", "REAL_QID": "0"}), ("TRANSACTION", {"__transactionId__": "U"})],
)
async def test_a_message_that_waited_at_another_broker_group_is_of_the_type_that_it_was(
    start_broker: Start, declared: str, properties: dict[str, str]
) -> None:
    broker = await start_broker(enableTopicMessageTypeCheck=True)
    for topic, type_ in (("Typed", declared), ("Fifo", "FIFO")):
        broker.create_topic(topic, attributes={"+message.type": type_})
    assert (await broker.send("Typed", b"x", **properties)).code == 0
    assert (await broker.send("Fifo", b"x", **properties)).code == ResponseCode.MESSAGE_ILLEGAL
