"""Request-reply: an answer comes back to whoever asked."""

import asyncio
from collections.abc import Callable

import pytest

from maxq.api import ConsumeContext, Message, MessageExt, async_producer, async_push_consumer
from maxq.client.errors import RequestTimeoutError
from maxq.client.instance.request_reply import create_reply_message
from maxq.errors import ClientError
from tests.integration.client.helpers import FROM_FIRST

Name = Callable[[str], str]


async def test_each_requester_gets_the_reply_to_its_own_request(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with (
        async_producer(name("P"), namesrv) as asking,
        async_producer(name("R"), namesrv) as replying,
    ):
        await asking.send(Message(topic, b"no request"))

        async def answer(messages: list[MessageExt], context: ConsumeContext) -> None:
            for message in messages:
                if message.body != b"no request":
                    await replying.send(create_reply_message(message, message.body * 2))
                else:
                    with pytest.raises(ClientError, match="asks for no reply"):
                        create_reply_message(message, b"x")

        consumer = async_push_consumer(name("G"), namesrv, answer, consume_from_where=FROM_FIRST)
        consumer.subscribe(topic)
        async with consumer:
            replies = await asyncio.gather(
                *(asking.request(Message(topic, b"%d," % n), timeout_ms=10_000) for n in range(10))
            )
    assert [reply.body for reply in replies] == [b"%d,%d," % (n, n) for n in range(10)]
    assert int(replies[0].properties["ARRIVE_TIME"]) > 0


async def test_a_request_without_reply_ends_in_time(namesrv: str, name: Name) -> None:
    async with async_producer(name("P"), namesrv) as producer:
        with pytest.raises(RequestTimeoutError, match="no reply came within 1000 ms"):
            await producer.request(Message(name("T"), b"?"), timeout_ms=1_000)
