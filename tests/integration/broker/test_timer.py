"""Timer messages through a running broker: sent, delivered, taken back."""

import base64

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol import json_dialect
from maxq.protocol.header.send import RecallMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.recall_handle import RecallHandle
from maxq.protocol.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

QUICK = {"timerPrecisionMs": "100", "timerFlushIntervalMs": "50"}


async def send_in(
    broker: RunningBroker, delay_ms: int, body: bytes = b"b", **more: object
) -> SendMessageResponseHeader:
    reply = await broker.send("T", body, TIMER_DELAY_MS=str(delay_ms), UNIQ_KEY=body.decode(), **more)
    assert reply.code == 0, reply.remark
    return SendMessageResponseHeader.decode(reply.ext)


async def recall(broker: RunningBroker, handle: str, topic: str = "T") -> RemotingCommand:
    header = RecallMessageRequestHeader(topic, handle, "PG")
    return await broker.invoke(RemotingCommand(RequestCode.RECALL_MESSAGE, header.encode()))


async def test_a_timer_message_is_answered_with_its_queue_and_a_handle_and_comes_later(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    sent = await send_in(broker, 400, b"one", queue_id=2)
    assert sent.queue_id == 2 and sent.recall_handle is not None
    handle = RecallHandle.decode(sent.recall_handle)
    assert (handle.topic, handle.broker_name, handle.message_id) == ("T", "broker-a", "one")
    store = broker.controller.store
    assert store.max_offset("T", 2) == 0
    await until(lambda: store.max_offset("T", 2) == 1)
    (message,) = await broker.pull_messages("T", queue_id=2)
    assert message.body == b"one"
    assert message.store_timestamp >= message.born_timestamp + 400


async def test_a_recalled_message_never_comes(start_broker: Start) -> None:
    broker = await start_broker(recallMessageEnable="true", **QUICK)
    broker.create_topic("T")
    gone = await send_in(broker, 600, b"gone")
    await send_in(broker, 700, b"stays")
    reply = await recall(broker, gone.recall_handle or "")
    assert (reply.code, reply.ext["msgId"]) == (0, "gone")
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    (message,) = await broker.pull_messages("T")
    assert message.body == b"stays"
    await until(lambda: broker.controller.timed.service.timer.pending == 0)


async def test_a_recall_is_refused_with_the_reason(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    broker.create_topic("U")
    handle = (await send_in(broker, 60_000)).recall_handle or ""
    reply = await recall(broker, handle)
    assert reply.code == ResponseCode.NO_PERMISSION and "recallMessageEnable is false" in (reply.remark or "")
    await broker.stop()
    broker = await start_broker(recallMessageEnable="true", **QUICK)
    past = RecallHandle("T", "broker-a", 1_000, "x").encode()
    foreign = RecallHandle("T", "broker-b", 1_000, "x").encode()
    for topic, given, code in (
        ("V", handle, ResponseCode.TOPIC_NOT_EXIST),
        ("U", handle, ResponseCode.ILLEGAL_OPERATION),
        ("T", past, ResponseCode.ILLEGAL_OPERATION),
        ("T", foreign, ResponseCode.ILLEGAL_OPERATION),
        ("T", "not base64!", ResponseCode.ILLEGAL_OPERATION),
        ("T", base64.urlsafe_b64encode(b"v2 a b c d").decode(), ResponseCode.ILLEGAL_OPERATION),
    ):
        reply = await recall(broker, given, topic)
        assert (reply.code, (reply.remark or "")[:6]) == (code, "recall"), (topic, given)


async def test_without_the_wheel_timer_messages_are_refused(start_broker: Start) -> None:
    broker = await start_broker(timerWheelEnable="false")
    broker.create_topic("T")
    reply = await broker.send("T", b"b", TIMER_DELAY_MS="500")
    assert reply.code == ResponseCode.SYSTEM_ERROR and "timerWheelEnable is false" in (reply.remark or "")


async def test_a_batch_cannot_have_a_delivery_time(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    reply = await broker.send("T", b"b", batch=True, TIMER_DELAY_MS="500")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL and "TIMER_DELAY_MS" in (reply.remark or "")


async def test_a_delay_level_outranks_the_timer(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    reply = await broker.send("T", b"b", TIMER_DELAY_MS="60000", DELAY="1")
    assert reply.code == 0
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)


async def test_the_broker_tells_how_far_its_timer_is(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    await send_in(broker, 60_000)
    await until(lambda: broker.controller.timed.service.timer.pending == 1)
    reply = await broker.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {}))
    table = json_dialect.loads(reply.body)["table"]
    assert (table["timerCongestNum"], table["timerOffsetBehind"], table["timerReadBehind"]) == ("1", "0", "0")
    reply = await broker.invoke(RemotingCommand(RequestCode.GET_TIMER_METRICS, {}))
    assert json_dialect.loads(reply.body)["timingCount"]["T"]["count"] == 1
