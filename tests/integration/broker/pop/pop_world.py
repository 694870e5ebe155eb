"""Pops, acks and changes of invisible time, as any client would send them."""

from maxq.client.results.pop_result import PopResult, PopStatus, decode_pop_answer, handle_of
from maxq.codes import RequestCode
from maxq.protocol.body.pop import BatchAck, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.pop_extra_info import real_topic
from tests.integration.broker.harness import RunningBroker

LONG_MS = 60_000
GROUP = "G"
NAME = "broker-a"


def pop_request(topic: str = "T", **more: object) -> RemotingCommand:
    """POP_MESSAGE; any field of the header by its attribute's name."""
    fields: dict[str, object] = {
        "consumer_group": GROUP, "topic": topic, "queue_id": -1, "max_msg_nums": 32, "invisible_time": LONG_MS,
        "poll_time": 0, "born_time": 0, "init_mode": 0, **more,
    }  # fmt: skip
    return RemotingCommand(RequestCode.POP_MESSAGE, PopMessageRequestHeader(**fields).encode())  # type: ignore[arg-type]


async def pop(broker: RunningBroker, topic: str = "T", **more: object) -> PopResult:
    """What is found; an answer that is a refusal fails the test."""
    reply = await broker.invoke(pop_request(topic, **more))
    result = decode_pop_answer(reply, topic, NAME, order=bool(more.get("order")))
    assert result is not None, f"{reply.code} {reply.remark}"
    return result


async def popped(broker: RunningBroker, topic: str = "T", **more: object) -> list[MessageExt]:
    return (await pop(broker, topic, **more)).messages


async def pop_all(broker: RunningBroker, topic: str = "T", **more: object) -> list[MessageExt]:
    """Until nothing comes."""
    found: list[MessageExt] = []
    while (result := await pop(broker, topic, **more)).status is PopStatus.FOUND:
        found += result.messages
    return found


async def ack(broker: RunningBroker, message: MessageExt, group: str = GROUP) -> RemotingCommand:
    handle = handle_of(message)
    header = AckMessageRequestHeader(
        group,
        real_topic(message.topic, group, handle.retry),
        handle.queue_id or 0,
        str(handle),
        handle.queue_offset or 0,
    )
    return await broker.invoke(RemotingCommand(RequestCode.ACK_MESSAGE, header.encode()))


async def batch_ack(broker: RunningBroker, messages: list[MessageExt], group: str = GROUP) -> RemotingCommand:
    by_point: dict[tuple[object, ...], BatchAck] = {}
    for message in messages:
        handle = handle_of(message)
        key = (handle.retry, handle.start_offset, handle.queue_id, handle.pop_time)
        batch = by_point.setdefault(
            key,
            BatchAck(
                message.topic,
                group,
                handle.retry,
                handle.start_offset,
                handle.queue_id or 0,
                handle.revive_qid,
                handle.pop_time,
                handle.invisible_time,
                [],
            ),
        )
        batch.bits.append((handle.queue_offset or 0) - handle.start_offset)
    return await broker.invoke(
        RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, body=encode_batch_acks(NAME, by_point.values()))
    )


async def change_time(
    broker: RunningBroker, message: MessageExt, invisible_ms: int, group: str = GROUP, suspend: bool = False
) -> RemotingCommand:
    handle = handle_of(message)
    header = ChangeInvisibleTimeRequestHeader(
        group, real_topic(message.topic, group, handle.retry), handle.queue_id or 0, str(handle),
        handle.queue_offset or 0, invisible_ms, suspend=suspend,
    )  # fmt: skip
    return await broker.invoke(RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode()))


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)
