"""Retry topics of pop consumption are the group's that pops, and nobody else's. In its older spelling
`%RETRY%her_group_hers` is where the group `her_group` finds messages of `hers` again, and where the group
`her_group_hers` finds its own."""

import asyncio

from maxq.auth.signature import Credentials
from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode as Code
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PeekMessageRequestHeader,
)
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.pop_extra_info import real_topic
from tests.integration.access.test_strangers import HER_GROUP, HER_TOPIC, MALLORY, NO_PERMISSION, OWNER, World, world
from tests.integration.access.world import signed, until
from tests.integration.broker.pop.pop_world import NAME, pop_request

__all__ = ["world"]

MIXED = f"{HER_GROUP}_{HER_TOPIC}"  # another's group
MIXED_RETRY = f"%RETRY%{MIXED}"


async def _popped(world: World, who: Credentials = MALLORY, **more: object) -> list[MessageExt]:
    request = pop_request(HER_TOPIC, consumer_group=HER_GROUP, **more)
    answer = await world.broker.invoke(signed(request, who))
    result = decode_pop_answer(answer, HER_TOPIC, NAME, order=False)
    assert result is not None, f"{answer.code} {answer.remark}"
    return result.messages


async def _one(world: World, **more: object) -> MessageExt:
    """The one message that there is, when it comes."""
    async with asyncio.timeout(20):
        while not (found := await _popped(world, **more)):  # noqa: ASYNC110  # it comes by time
            await asyncio.sleep(0.02)
    (message,) = found
    return message


def _ack(message: MessageExt, topic: str = "") -> RemotingCommand:
    handle = handle_of(message)
    header = AckMessageRequestHeader(
        HER_GROUP, topic or real_topic(message.topic, HER_GROUP, handle.retry), handle.queue_id or 0, str(handle),
        handle.queue_offset or 0,
    )  # fmt: skip
    return signed(RemotingCommand(Code.ACK_MESSAGE, header.encode()), MALLORY)


def _change(message: MessageExt, invisible_ms: int, topic: str = "") -> RemotingCommand:
    handle = handle_of(message)
    header = ChangeInvisibleTimeRequestHeader(
        HER_GROUP, topic or real_topic(message.topic, HER_GROUP, handle.retry), handle.queue_id or 0, str(handle),
        handle.queue_offset or 0, invisible_ms,
    )  # fmt: skip
    return signed(RemotingCommand(Code.CHANGE_MESSAGE_INVISIBLETIME, header.encode()), MALLORY)


async def _foreign_retry(world: World) -> None:
    """The group of the other name, and a message that it is to try again."""
    config = b'{"groupName":"%b"}' % MIXED.encode()
    assert (await world.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config, who=OWNER)).code == 0
    world.broker.create_topic(MIXED_RETRY, 1)
    await world.send(MIXED_RETRY, b"secret")


async def test_what_comes_again_is_acknowledged_by_the_group_that_popped_it(world: World) -> None:
    await world.send(HER_TOPIC, b"hers", MALLORY)
    await _one(world, invisible_time=1_000)
    again = await _one(world, invisible_time=60_000)
    assert again.reconsume_times == 1
    assert (await world.broker.invoke(_change(again, 1_000))).code == 0
    again = await _one(world, invisible_time=60_000)
    assert (await world.broker.invoke(_ack(again))).code == 0


async def test_the_retry_topic_of_a_group_is_not_popped_by_one_with_a_shorter_name(world: World) -> None:
    await _foreign_retry(world)
    await world.send(HER_TOPIC, b"hers", MALLORY)
    first = await _one(world, invisible_time=1_000)
    for code in (Code.PEEK_MESSAGE, Code.NOTIFICATION):
        header = PeekMessageRequestHeader(HER_GROUP, HER_TOPIC, -1, 32).encode()
        answer = await world.ask(code, {**header, "pollTime": "0", "bornTime": "0"})
        assert b"secret" not in answer.body_bytes and answer.ext.get("hasMsg") != "true"
    for request in (_ack(first, MIXED_RETRY), _change(first, 1_000, MIXED_RETRY)):
        assert (await world.broker.invoke(request)).code == NO_PERMISSION
    again = await _one(world, invisible_time=60_000)
    assert (again.body, again.reconsume_times) == (b"hers", 1)
    assert (await world.broker.invoke(_ack(again))).code == 0
    assert world.end(MIXED_RETRY) == 1
    assert await _popped(world) == []


async def test_deleting_a_topic_leaves_the_retry_topic_of_a_group_with_a_longer_name(world: World) -> None:
    await _foreign_retry(world)
    await world.send(HER_TOPIC, b"hers", MALLORY)
    await _one(world)
    await until(lambda: HER_GROUP in world.broker.controller.offsets.which_group_by_topic(HER_TOPIC))
    who = MALLORY if world.broker.controller.access.plain is None else OWNER
    assert (await world.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": HER_TOPIC}, who=who)).code == 0
    assert world.broker.controller.topics.select_topic_config(MIXED_RETRY) is not None
    assert world.end(MIXED_RETRY) == 1
