"""Orderly consumption: one at a time per queue, in order, whatever fails."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from maxq.api import ConsumeContext, ConsumeResult, Message, MessageExt, async_producer, async_push_consumer
from tests.integration.client.helpers import FROM_FIRST, eventually

Name = Callable[[str], str]


async def test_each_queue_is_delivered_in_order_and_one_at_a_time(namesrv: str, name: Name) -> None:
    topic, count = name("T"), 200
    orders: dict[int, list[int]] = defaultdict(list)
    running: set[int] = set()

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        assert message.queue_id not in running, "two calls for one queue at the same time"
        running.add(message.queue_id)
        await asyncio.sleep(0)
        running.discard(message.queue_id)
        orders[message.queue_id].append(message.queue_offset)
        return ConsumeResult.SUCCESS

    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(count)])
    consumer = async_push_consumer(name("G"), namesrv, listen, orderly=True, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await eventually(lambda: sum(map(len, orders.values())) == count, "all messages")
    assert all(offsets == list(range(len(offsets))) for offsets in orders.values())
    assert len(orders) == 4


async def test_a_failing_message_blocks_its_queue_until_it_succeeds(namesrv: str, name: Name) -> None:
    topic = name("T")
    seen: list[tuple[bytes, int]] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        seen.append((message.body, message.reconsume_times))
        if message.body == b"2" and message.reconsume_times < 3:
            context.suspend_ms = 10
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeResult.SUCCESS

    async with async_producer(name("P"), namesrv, default_topic_queue_nums=1) as producer:
        for n in range(5):
            await producer.send(Message(topic, b"%d" % n))
    consumer = async_push_consumer(name("G"), namesrv, listen, orderly=True, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await eventually(lambda: len(seen) == 8, "five messages, one of them four times")
    assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"2", 1), (b"2", 2), (b"2", 3), (b"3", 0), (b"4", 0)]


async def test_order_is_kept_when_a_second_member_takes_queues_over(namesrv: str, name: Name) -> None:
    topic, group, count = name("T"), name("G"), 400
    orders: dict[int, list[int]] = defaultdict(list)
    members: dict[int, set[str]] = defaultdict(set)

    def listener(who: str) -> Callable[[list[MessageExt], ConsumeContext], object]:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            for message in messages:
                orders[message.queue_id].append(message.queue_offset)
                members[message.queue_id].add(who)
            await asyncio.sleep(0.001)

        return listen

    def member(who: str):  # type: ignore[no-untyped-def]
        consumer = async_push_consumer(
            group,
            namesrv,
            listener(who),
            orderly=True,
            consume_from_where=FROM_FIRST,  # type: ignore[arg-type]
        )
        consumer.subscribe(topic)
        return consumer

    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(count // 2)])
        async with member("first"):
            await eventually(lambda: sum(map(len, orders.values())) > 50, "the first member is at work")
            async with member("second") as second:
                await eventually(
                    lambda: sum(queue.topic == topic for queue in second.assigned_queues()) == 2,
                    "two queues change hands",
                )
                await producer.send_many([Message(topic, b"%d" % n) for n in range(count // 2)])
                await eventually(lambda: sum(len(set(o)) for o in orders.values()) == count, "all messages")
    for offsets in orders.values():
        firsts = list(dict.fromkeys(offsets))  # a message may come again when its queue changes hands
        assert firsts == sorted(firsts)
    assert any("second" in who for who in members.values())
