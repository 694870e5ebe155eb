"""Messages that come back in one arrival, by the batch path: what it stores and answers is what the processor would."""

import asyncio

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.message.message import MessageExt, decode_record
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import Asked, RunningBroker, until

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 1s 1s 1s 1s 1h 1h"
COUNT = 100


def _request(physical_offset: int, opaque: int, *, level: int = 0, group: str = "G") -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(physical_offset, group, level, "", "T", False, 16)
    return RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode(), opaque=opaque)


async def _give_back(broker: RunningBroker, requests: list[RemotingCommand]) -> list[RemotingCommand]:
    """All in one write; the answers in their order."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port)
    try:
        writer.write(b"".join(request.encode() for request in requests))
        answers = []
        for _ in requests:
            size = int.from_bytes(await reader.readexactly(4), "big")
            answers.append(decode_frame(await reader.readexactly(size)))
        return sorted(answers, key=lambda answer: answer.opaque)
    finally:
        writer.close()
        await writer.wait_closed()


async def _sent(broker: RunningBroker, count: int) -> list[int]:
    """Physical offsets of so many messages of T."""
    broker.create_topic("T")
    for number in range(count):
        await broker.send("T", b"body %d" % number, TAGS="a", KEYS=f"k{number}", UNIQ_KEY=f"U{number}")
    return [unit[0] for unit in broker.controller.store.queue_units("T", 0, 0, count)]


def _records(broker: RunningBroker, topic: str, queue_id: int) -> list[MessageExt]:
    store = broker.controller.store
    units = store.queue_units(topic, queue_id, 0, store.max_offset(topic, queue_id))
    found = [store.select_one_message(unit[0]) for unit in units]
    return [decode_record(record) for record in found if record is not None]


async def test_copies_are_those_of_the_processor(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    asked = Asked(broker, RequestCode.CONSUMER_SEND_MSG_BACK)
    (first, second) = await _sent(broker, 2)
    (by_processor,) = await _give_back(broker, [_request(first, 1, level=6)])  # makes the retry topic
    assert by_processor.code == ResponseCode.SUCCESS and asked.count == 1
    answers = await _give_back(broker, [_request(first, 5, level=6), _request(second, 6, level=6)])
    assert [(answer.opaque, answer.code, answer.remark) for answer in answers] == [(5, 0, None), (6, 0, None)]
    assert asked.count == 1  # the batch path took both
    one, same, other = _records(broker, SCHEDULE, 5)
    assert same.properties == one.properties and list(same.properties) == list(one.properties)
    for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times", "body_crc"):
        assert getattr(same, name) == getattr(one, name), name
    assert same.store_host == one.store_host
    assert other.body == b"body 1" and other.properties["KEYS"] == "k1"
    counted = broker.controller.stats.view("SNDBCK_PUT_NUMS", "T@G")
    assert counted is not None and (counted.value, counted.times) == (3, 3)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_many_come_back_are_delivered_and_come_back_again(start_broker: Start, flush: str) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS, flushDiskType=flush)
    asked = Asked(broker, RequestCode.CONSUMER_SEND_MSG_BACK)
    offsets = await _sent(broker, COUNT)
    await _give_back(broker, [_request(offsets[0], 0)])
    answers = await _give_back(broker, [_request(offset, number) for number, offset in enumerate(offsets[1:], 1)])
    assert [answer.opaque for answer in answers] == list(range(1, COUNT))
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert 1 <= asked.count < COUNT / 2  # one at each end of a run may go through the processor
    await until(lambda: broker.controller.store.max_offset("%RETRY%G", 0) == COUNT)
    back = _records(broker, "%RETRY%G", 0)
    assert sorted(message.body for message in back) == sorted(b"body %d" % number for number in range(COUNT))
    assert {message.reconsume_times for message in back} == {1}
    assert [message.queue_offset for message in back] == list(range(COUNT))
    offsets_now = broker.controller.delayed.service.runtime_info()["scheduleMessageOffset_3"]
    assert offsets_now == f"{COUNT},{COUNT}"
    again = await _give_back(broker, [_request(message.physical_offset, 1) for message in back[:3]])
    assert [answer.code for answer in again] == [0, 0, 0]
    await until(lambda: broker.controller.store.max_offset("%RETRY%G", 0) == COUNT + 3)
    assert {message.reconsume_times for message in _records(broker, "%RETRY%G", 0)[COUNT:]} == {2}


async def test_what_is_not_plain_is_answered_in_its_place(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=LEVELS)
    asked = Asked(broker, RequestCode.CONSUMER_SEND_MSG_BACK)
    offsets = await _sent(broker, 4)
    await _give_back(broker, [_request(offsets[0], 0)])
    requests = [_request(offsets[1], 1), _request(offsets[2], 2, level=-1), _request(3, 3), _request(offsets[3], 4)]
    answers = await _give_back(broker, requests)
    assert [answer.code for answer in answers] == [0, 0, ResponseCode.SYSTEM_ERROR, 0]
    assert answers[2].remark == "look message by offset failed, 3"
    store = broker.controller.store
    assert (store.max_offset("%DLQ%G", 0), store.max_offset(SCHEDULE, 2)) == (1, 3)
    assert asked.count == 3  # the first of all, the dead letter, and what is not there
