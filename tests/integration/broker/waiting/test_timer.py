"""Timer messages through a running broker: sent, delivered, taken back."""

import asyncio
import base64
from typing import Any

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import RecallMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.json import json_dialect
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.store.timer.timer_wheel import TimerWheel
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
    gone = await send_in(broker, 1_500, b"gone")
    await send_in(broker, 1_600, b"stays")
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


async def timers(broker: RunningBroker, code: int, **ext: str) -> dict[str, Any]:
    reply = await broker.invoke(RemotingCommand(code, ext))
    assert reply.code == 0, reply.remark
    found: dict[str, Any] = json_dialect.loads(reply.body) if reply.body else {}
    return found


async def test_an_operator_sees_what_is_due_when_page_by_page(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    for topic in ("T", "U"):
        broker.create_topic(topic)
    for number in range(5):
        await send_in(broker, 60_000 + number * 1_000, f"m{number}".encode(), queue_id=1)
    await broker.send("U", b"other", TIMER_DELAY_MS="62000")
    await until(lambda: broker.controller.timed.service.timer.pending == 6)
    code, cursor, ids = RequestCode.MAXQ_LIST_TIMER_MESSAGES, "", []
    while True:
        page = await timers(broker, code, topic="T", maxNum="2", cursor=cursor)
        assert len(page["entries"]) <= 2 and page["pending"] == 6 and page["isDelivering"]
        ids += [(entry["msgId"], entry["queueId"], entry["state"]) for entry in page["entries"]]
        cursor = page["next"]
        if not cursor:
            break
    assert ids == [(f"m{number}", 1, "WAITING") for number in range(5)]


async def test_a_page_of_long_messages_ends_after_some_megabytes(start_broker: Start) -> None:
    broker = await start_broker(mappedFileSizeCommitLog=64 << 20, **QUICK)
    broker.create_topic("T")
    for number in range(5):
        await broker.send("T", b"x" * (3 << 20), TIMER_DELAY_MS="600000", UNIQ_KEY=f"m{number}")
    await until(lambda: broker.controller.timed.service.timer.pending == 5)
    cursor, found = "", []
    while True:
        page = await timers(broker, RequestCode.MAXQ_LIST_TIMER_MESSAGES, maxNum="1000", cursor=cursor)
        found.append(sorted(entry["msgId"] for entry in page["entries"]))
        cursor = page["next"]
        if not cursor:
            break
    assert sorted(name for names in found for name in names) == [f"m{number}" for number in range(5)]
    assert max(map(len, found)) == 2


async def test_an_operator_is_told_why_a_message_is_late(start_broker: Start) -> None:
    broker = await start_broker(timerStopDequeue="true", **QUICK)
    broker.create_topic("T")
    await send_in(broker, 200, b"late")
    code = RequestCode.MAXQ_INSPECT_TIMER_MESSAGE
    async with asyncio.timeout(30):
        while True:
            entries = (await timers(broker, code, key="late"))["entries"]
            if entries and entries[0]["state"] == "LATE":
                break
            await asyncio.sleep(0.02)
    assert entries[0]["why"] == "timerStopDequeue is true"


async def test_an_operator_takes_a_message_back_without_its_handle(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("T")
    await send_in(broker, 1_500, b"gone")
    await send_in(broker, 1_600, b"stays")
    await until(lambda: broker.controller.timed.service.timer.pending == 2)
    await timers(broker, RequestCode.MAXQ_CANCEL_TIMER_MESSAGE, key="gone")
    reply = await broker.invoke(RemotingCommand(RequestCode.MAXQ_CANCEL_TIMER_MESSAGE, {"key": "unknown"}))
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    (message,) = await broker.pull_messages("T")
    assert message.body == b"stays"


async def test_there_is_one_timer_engine(start_broker: Start) -> None:
    broker = await start_broker()
    assert (await broker.invoke(RemotingCommand(RequestCode.SWITCH_TIMER_ENGINE, {"E_T": "F"}))).code == 0
    reply = await broker.invoke(RemotingCommand(RequestCode.SWITCH_TIMER_ENGINE, {"E_T": "R"}))
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "timerRocksDBEnable must be configured true when broker start" in (reply.remark or "")


async def test_an_empty_wheel_is_looked_at_as_far_as_time_has_come(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it are 37 MiB, which held the loop every two minutes and stayed in memory."""
    broker = await start_broker(**QUICK)
    timer = broker.controller.timed.service.timer
    pages = 0
    empty_from = TimerWheel._empty_from

    def counted(wheel: TimerWheel, page: int) -> int:
        nonlocal pages
        count = empty_from(wheel, page)
        pages += max(count, 1)
        return count

    monkeypatch.setattr(TimerWheel, "_empty_from", counted)
    began = timer.read_time_ms = timer.read_time_ms - 60_000  # some pages of 12.8 s
    await until(lambda: timer.read_time_ms >= began + 60_000)
    assert 1 <= pages <= 5 + 16
