"""LitePullConsumer: the application decides what to read, from where, and what is done."""

from collections import Counter
from collections.abc import Callable

import pytest

from maxq.api import Message, MessageExt, async_lite_pull_consumer, async_producer
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.errors import ClientError
from tests.integration.client.helpers import FROM_FIRST, eventually

Name = Callable[[str], str]


async def fill(namesrv: str, group: str, topic: str, count: int, queues: int = 4, prefix: str = "") -> None:
    async with async_producer(group, namesrv, default_topic_queue_nums=queues) as producer:
        for n in range(count):
            await producer.send(Message(topic, f"{prefix}{n}".encode()))


async def take(consumer: LitePullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    while len(messages) < count:
        got = await consumer.poll(10_000)
        assert got, f"{count} messages, got {len(messages)}"
        messages += got
    return messages


async def test_subscribed_messages_are_polled_once_each(namesrv: str, name: Name) -> None:
    topic = name("T")
    await fill(namesrv, name("P"), topic, 100)
    consumer = async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST)
    await consumer.subscribe(topic)
    async with consumer:
        messages = await take(consumer, 100)
        assert await consumer.poll(0) == []
    assert Counter(m.body for m in messages) == Counter(b"%d" % n for n in range(100))


async def test_what_was_committed_is_not_read_again(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await fill(namesrv, name("P"), topic, 20, queues=1)
    consumer = async_lite_pull_consumer(
        group, namesrv, consume_from_where=FROM_FIRST, auto_commit=False, pull_batch_size=5
    )
    await consumer.subscribe(topic)
    async with consumer:
        first = await take(consumer, 5)
        await consumer.commit()
        await take(consumer, 5)  # not committed
        queue = (await consumer.fetch_message_queues(topic))[0]
        assert await consumer.committed(queue) == 5
    again = async_lite_pull_consumer(group, namesrv, consume_from_where=FROM_FIRST)
    await again.subscribe(topic)
    async with again:
        rest = await take(again, 15)
    assert [m.queue_offset for m in first] == [0, 1, 2, 3, 4]
    assert [m.queue_offset for m in rest] == list(range(5, 20))


async def test_assigned_queues_are_read_and_no_others(namesrv: str, name: Name) -> None:
    topic = name("T")
    await fill(namesrv, name("P"), topic, 40)
    async with async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        queues = await consumer.fetch_message_queues(topic)
        await consumer.assign(queues[1:3])
        assert consumer.assignment() == set(queues[1:3])
        messages = await take(consumer, 20)
    assert {m.queue_id for m in messages} == {1, 2}


async def test_seek_reads_on_from_any_offset(namesrv: str, name: Name) -> None:
    topic = name("T")
    await fill(namesrv, name("P"), topic, 50, queues=1)
    async with async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        (queue,) = await consumer.fetch_message_queues(topic)
        await consumer.assign([queue])
        await take(consumer, 50)
        await consumer.seek(queue, 30)
        assert [m.queue_offset for m in await take(consumer, 20)] == list(range(30, 50))
        await consumer.seek_to_begin(queue)
        assert [m.queue_offset for m in await take(consumer, 50)] == list(range(50))
        await consumer.seek(queue, 10)
        await consumer.seek_to_end(queue)
        await fill(namesrv, name("P"), topic, 1, prefix="new")
        assert [m.body for m in await take(consumer, 1)] == [b"new0"]
        with pytest.raises(ClientError, match="its offsets go from 0 to 51"):
            await consumer.seek(queue, 52)


async def test_offset_for_timestamp_finds_the_first_later_message(namesrv: str, name: Name) -> None:
    topic = name("T")
    await fill(namesrv, name("P"), topic, 10, queues=1)
    async with async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        (queue,) = await consumer.fetch_message_queues(topic)
        await consumer.assign([queue])
        messages = await take(consumer, 10)
        stored = messages[4].store_timestamp
        expected = next(m.queue_offset for m in messages if m.store_timestamp >= stored)
        assert await consumer.offset_for_timestamp(queue, stored) == expected
        assert await consumer.offset_for_timestamp(queue, 0) == 0


async def test_paused_queues_give_nothing_until_they_are_resumed(namesrv: str, name: Name) -> None:
    topic = name("T")
    await fill(namesrv, name("P"), topic, 40)
    async with async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        queues = await consumer.fetch_message_queues(topic)
        await consumer.assign(queues)
        consumer.pause(queues[:3])
        assert {m.queue_id for m in await take(consumer, 10)} == {3}
        assert await consumer.poll(50) == []
        consumer.resume(queues[:3])
        assert {m.queue_id for m in await take(consumer, 30)} == {0, 1, 2}


async def test_two_subscribers_share_the_queues(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    await fill(namesrv, name("P"), topic, 8)
    first = async_lite_pull_consumer(group, namesrv, consume_from_where=FROM_FIRST)
    second = async_lite_pull_consumer(group, namesrv, consume_from_where=FROM_FIRST)
    await first.subscribe(topic)
    await second.subscribe(topic)
    async with first, second:
        await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, "two queues each")
        assert not first.assignment() & second.assignment()


async def test_subscribe_and_assign_exclude_each_other(namesrv: str, name: Name) -> None:
    consumer = async_lite_pull_consumer(name("G"), namesrv)
    await consumer.subscribe(name("T"))
    with pytest.raises(ClientError, match="exclude each other"):
        await consumer.assign([])
